#!/usr/bin/env python3
"""Makes the reference answers of this folder with JAX. README.md describes the files and the commands.

Each case is a question and JAX's answers. FILES says, for each file, which keys are the question, which function
answers it, and which invents a random one.
"""
import argparse
import collections
import contextlib
import io
import json
import math
import os
import random
import re

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=64")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # XLA's remarks on layouts
os.environ["COLUMNS"] = "80"  # the width of the drawings

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental import mesh_utils  # noqa: E402
from jax.extend.random import threefry_2x32  # noqa: E402
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
DEVICES = jax.devices()

# ---- from JSON to JAX and back ----


def product(sizes):
    return math.prod(int(n) for n in sizes)


def mesh_of(m, axis_type=AxisType.Auto):
    ids = np.array([DEVICES[i] for i in m["device_ids"]], dtype=object)
    return Mesh(ids.reshape(m["shape"]), tuple(m["axis_names"]), axis_types=(axis_type,) * len(m["axis_names"]))


def spec_of(entries):
    return PartitionSpec(*[tuple(entry) if isinstance(entry, list) else entry for entry in entries])


def sharding_of(case, axis_type=AxisType.Auto):
    return NamedSharding(mesh_of(case["mesh"], axis_type), spec_of(case["spec"]))


def listed(spec):
    return [list(entry) if isinstance(entry, tuple) else entry for entry in spec]


def device_ids(sharding):
    devices = sharding.mesh.devices.flat if isinstance(sharding, NamedSharding) else sharding.device_set
    return [device.id for device in devices]


def boxes(sharding, shape):
    """The box of each device, in the order of the mesh."""
    by_id = {device.id: index for device, index in sharding.devices_indices_map(tuple(shape)).items()}
    return [[list(part.indices(n)[:2]) for part, n in zip(by_id[i], shape)] for i in device_ids(sharding)]


def elements(box):
    return product(stop - start for start, stop in box)


def distinct(items):
    return [list(map(list, box)) for box in dict.fromkeys(tuple(map(tuple, box)) for box in items)]


def single(x):
    """A float32 as the shortest decimal that reads back as itself."""
    return float(str(np.float32(x)))


def plain(x):
    """The elements in row-major order."""
    flat = np.asarray(x).reshape(-1)
    return [single(v) for v in flat] if flat.dtype == np.float32 else [int(v) for v in flat]


def error_of(e):
    bases = [base.__name__ for base in type(e).__mro__[1:] if issubclass(base, Exception)]
    return {"type": type(e).__name__, "bases": bases, "message": str(e)}


def attempt(call):
    """`raises` and the error, or what `call` returns, a dict."""
    try:
        return {"raises": False, **call()}
    except Exception as e:  # noqa: BLE001: every error is an answer
        return {"raises": True, "error": error_of(e)}


# ---- the answers, one function for each file ----


def sharding_maps(case):
    s, shape = sharding_of(case), tuple(case["global_shape"])
    ids, index = device_ids(s), boxes(s, shape)
    x = jax.make_array_from_callback(shape, s, lambda part: np.zeros(
        [len(range(*one.indices(n))) for one, n in zip(part, shape)], np.int8))
    replicas = {shard.device.id: shard.replica_id for shard in x.addressable_shards}
    per = case["devices_per_process"]
    slices = [{"index": box, "devices": [i for i, other in zip(ids, index) if other == box]} for box in distinct(index)]
    processes = []
    for process in range(case["process_count"]):
        own = sorted(i for i in ids if i // per == process)
        needs = sorted(distinct(box for i, box in zip(ids, index) if i in own))
        processes.append({"process": process, "devices": own, "needs": needs, "elements": sum(map(elements, needs))})
    return {"shard_shape": list(s.shard_shape(shape)), "is_fully_replicated": s.is_fully_replicated,
            "num_replicas": len(slices[0]["devices"]),
            "devices": [{"id": i, "process": i // per, "replica_id": replicas[i], "index": box}
                        for i, box in zip(ids, index)],
            "slices": slices, "processes": processes}


def filled(shape, boxes_held):
    held = np.zeros(shape, bool)
    for box in boxes_held:
        held[tuple(slice(*one) for one in box)] = True
    return held


def reshard(case):
    shape, per = case["global_shape"], case["devices_per_process"]
    sides, held = {}, {}
    for side in ("from", "to"):
        s = sharding_of(case[side])
        sides[side] = {"mesh": case[side]["mesh"], "spec": case[side]["spec"], "index": boxes(s, shape)}
        held[side] = list(zip(device_ids(s), sides[side]["index"]))

    def missing(mine):
        old, new = (filled(shape, [box for i, box in held[side] if mine(i)]) for side in ("from", "to"))
        return int((new & ~old).sum())
    receive = [missing(lambda i, one=one: i == one) for one, _ in held["to"]]
    by_process = [missing(lambda i, p=p: i // per == p) for p in range(case["process_count"])]
    return {**sides, "receive": receive, "receive_total": sum(receive), "process_receive": by_process,
            "process_receive_total": sum(by_process)}


def arrays_of(case):
    return [jax.device_put(np.full(one["shape"], one.get("fill", 0), one["dtype"]), DEVICES[one["device"]])
            for one in case["arrays"]]


def from_callback(case):
    shape, wrong = tuple(case["global_shape"]), case.get("callback_shape")
    return jax.make_array_from_callback(shape, sharding_of(case), lambda index: np.zeros(
        wrong or [len(range(*one.indices(n))) for one, n in zip(index, shape)], np.float32)).shape


def from_arrays(case):
    x = jax.make_array_from_single_device_arrays(tuple(case["global_shape"]), sharding_of(case), arrays_of(case))
    return [float(shard.data[0]) for shard in x.addressable_shards] if "fill" in case["arrays"][0] else x.shape


def from_local(case):
    local, whole = np.zeros(case["local_shape"], np.float32), case["global_shape"]
    return jax.make_array_from_process_local_data(sharding_of(case), local, whole and tuple(whole)).shape


def add_of(case):
    if "inputs" in case:
        return jnp.add(*[jnp.zeros(one["shape"]) for one in case["inputs"]]).shape
    x = put(case)
    x.delete()
    return (x + 1).shape


def put(case):
    return jax.device_put(np.zeros(case["global_shape"], np.float32), sharding_of(case))


def constrained(case):
    return jax.jit(lambda x: jax.lax.with_sharding_constraint(x, sharding_of(case)))(jnp.zeros(case["global_shape"])).shape


CALLS = {
    "Mesh": lambda case: mesh_of(case["mesh"]).shape,
    "make_mesh": lambda case: jax.make_mesh(case["mesh"]["shape"], case["mesh"]["axis_names"],
                                            devices=DEVICES[:case["device_count"]]).shape,
    "create_device_mesh": lambda case: mesh_utils.create_device_mesh(case["mesh"]["shape"],
                                                                     DEVICES[:case["device_count"]]).shape,
    "NamedSharding": lambda case: sharding_of(case).spec,
    "shard_shape": lambda case: list(sharding_of(case).shard_shape(tuple(case["global_shape"]))),
    "devices_indices_map": lambda case: len(sharding_of(case).devices_indices_map(tuple(case["global_shape"]))),
    "device_put": lambda case: put(case).shape,
    "make_array_from_callback": from_callback,
    "with_sharding_constraint": constrained,
    "jit out_shardings": lambda case: jax.jit(lambda x: x, out_shardings=sharding_of(case))(
        jnp.zeros(case["global_shape"])).shape,
    "jit in_shardings": lambda case: jax.jit(lambda x: x, in_shardings=sharding_of(
        {**case, "spec": case["in_spec"]}))(put(case)).shape,
    "make_array_from_single_device_arrays": from_arrays,
    "make_array_from_process_local_data": from_local,
    "add": add_of,
    "dot": lambda case: jnp.dot(*[jnp.zeros(one["shape"]) for one in case["inputs"]]).shape,
    "reshape": lambda case: jnp.reshape(jnp.zeros(case["inputs"][0]["shape"]), tuple(case["new_shape"])).shape,
}


def sharding_errors(case):
    return attempt(lambda: {"result": str(CALLS[case["call"]](case))})


def value_of(given):
    mul, add, mod, sub = given["fill"]
    return ((np.arange(product(given["shape"])) * mul + add) % mod - sub).astype(np.float32).reshape(given["shape"])


OPS = {
    "sin": lambda case: jnp.sin, "relu": lambda case: lambda x: jnp.maximum(x, 0), "copy": lambda case: jnp.copy,
    "add_scalar": lambda case: lambda x: x + 1, "transpose": lambda case: jnp.transpose, "add": lambda case: jnp.add,
    "dot": lambda case: jnp.dot, "reshape": lambda case: lambda x: jnp.reshape(x, case["new_shape"]),
    **{name: lambda case, f=f: lambda x: f(x, case["axis"], keepdims=case["keepdims"])
       for name, f in {"sum": jnp.sum, "mean": jnp.mean, "max": jnp.max}.items()},
}
COLLECTIVE = re.compile(r" (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)(?:-start)?\(")


def operation(case):
    """dot.json and elementwise.json."""
    modes, values = {}, {}
    for mode, axis_type in (("auto", AxisType.Auto), ("explicit", AxisType.Explicit)):
        def run():
            f = OPS[case["op"]](case) if case["op"] != "constrain" else lambda x: jax.lax.with_sharding_constraint(
                x + 1, NamedSharding(mesh_of(case["mesh"], axis_type), spec_of(case["constrain_to"])))
            args = [jax.device_put(value_of(one), sharding_of({**case, **one}, axis_type)) for one in case["inputs"]]
            compiled = jax.jit(f).lower(*args).compile()
            out = compiled(*args)
            if mode == "auto":
                flat = np.asarray(out).reshape(-1)
                values.update({"sum": total(flat), "first": plain(flat[:8])})
            return {"shape": list(out.shape), "spec": listed(out.sharding.spec), "committed": out.committed,
                    "index": boxes(out.sharding, out.shape),
                    "collectives": dict(sorted(collections.Counter(COLLECTIVE.findall(compiled.as_text())).items()))}
        if mode == "explicit" and case["op"] == "constrain":  # a constraint speaks of Auto axes only
            modes[mode] = None
        else:
            modes[mode] = attempt(run)
    auto, explicit = modes["auto"], modes["explicit"]
    agree = not explicit or not explicit["raises"] and auto["index"] == explicit["index"]
    return {"values": values, "agree": agree, **modes}


def placed(given, shape):
    host, kind = np.arange(product(shape), dtype=np.float32).reshape(shape), given["kind"]
    if kind == "named":
        return jax.device_put(host, sharding_of(given, AxisType(AxisType[given["axis_types"].capitalize()])))
    return {"device": lambda: jax.device_put(host, DEVICES[given["id"]]), "uncommitted": lambda: jnp.asarray(host),
            "numpy": lambda: host, "scalar": lambda: 2}[kind]()


MAKES = {
    "device_put(numpy) without a place": lambda y: jax.device_put(np.asarray(y)),
    "jnp.zeros": lambda y: jnp.zeros(24),
    "jnp.ones_like of a sharded array": jnp.ones_like,
    "jnp.zeros with device=sharding": lambda y: jnp.zeros(24, device=y.sharding),
    "device_put of a sharded array without a place": jax.device_put,
    "jnp.copy of a sharded array": jnp.copy,
    "y + jnp.ones_like(y)": lambda y: y + jnp.ones_like(y),
    "y + jnp.arange(y.size).reshape(y.shape)": lambda y: y + jnp.arange(y.size).reshape(y.shape),
    "one element of a sharded array": lambda y: y[5],
    "a slice of a sharded array": lambda y: y[5:8],
    "sum of a sharded array": jnp.sum,
}


def placement(case):
    making = case["op"] == "make"
    shape = [24] if making else case["shape"]

    def run():
        args = [placed(one, shape) for one in case["inputs"]]
        out = MAKES[case["name"]](*args) if making else jnp.add(*args)
        s = out.sharding
        return {**({"shape": list(out.shape)} if making else {}),
                "spec": listed(s.spec) if isinstance(s, NamedSharding) else None, "committed": out.committed,
                "device_ids": device_ids(s), "index": boxes(s, out.shape)}
    return attempt(run)


def visualize(case):
    s = sharding_of(case) if case["mesh"] else SingleDeviceSharding(DEVICES[0])
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        jax.debug.visualize_sharding(tuple(case["shape"]), s, use_color=False)
    return {"lines": [line.rstrip() for line in out.getvalue().rstrip("\n").split("\n")]}


def ends(x):
    return {"first": plain(x[:8]), "last": plain(x[-8:])}


def total(x):
    """The sum of the elements as float64, rounded once: no other machine gives another."""
    return math.fsum(np.asarray(x, np.float64).reshape(-1))


def sums(x):
    return {"sum": total(x), "sum_of_squares": total(np.square(x, dtype=np.float64))}


def random_numbers(case):
    call = case["call"].replace(" checksum", "")
    if call == "threefry2x32":
        return {"out": plain(threefry_2x32(tuple(map(np.uint32, case["key"])), np.array(case["counter"], np.uint32)))}
    with jax.threefry_partitionable(case["partitionable"]):
        key, shape = jax.random.key(case["seed"]), tuple(case.get("shape", ()))
        if call in ("key", "split", "fold_in"):
            made = {"key": lambda: key, "split": lambda: jax.random.split(key, case["num"]),
                    "fold_in": lambda: jax.random.fold_in(key, np.uint32(case["data"]))}[call]()
            return {"key_data": np.asarray(jax.random.key_data(made)).tolist()}
        x = {"bits": lambda: jax.random.bits(key, shape, f"uint{case['width']}"),
             "uniform": lambda: jax.random.uniform(key, shape, minval=case.get("minval", 0), maxval=case.get("maxval", 1)),
             "normal": lambda: jax.random.normal(key, shape),
             "randint": lambda: jax.random.randint(key, shape, case["minval"], case["maxval"]),
             "permutation": lambda: jax.random.permutation(key, case["n"])}[call]()
    x = np.asarray(x).reshape(-1)
    if call == case["call"]:
        return {"values": plain(x)}
    if call == "bits":
        return {"sum": int(x.sum(dtype=np.uint64)), "xor": int(np.bitwise_xor.reduce(x)), **ends(x)}
    return {**sums(x), "min": single(x.min()), "max": single(x.max()), **ends(x)}


# The network of the notebook "Distributed arrays and automatic parallelization".


def init(case):
    sizes = case["layers"]
    key, *keys = jax.random.split(jax.random.key(case["seed"]), len(sizes))
    made = {}
    for number, (k, n_in, n_out) in enumerate(zip(keys, sizes, sizes[1:]), 1):
        k1, k2 = jax.random.split(k)
        made[f"W{number}"] = jax.random.normal(k1, (n_in, n_out)) / jnp.sqrt(n_in)
        made[f"b{number}"] = jax.random.normal(k2, (n_out,))
    key, *keys = jax.random.split(key, 3)
    return made, [jax.random.normal(k, (case["batch"], n)) for k, n in zip(keys, (sizes[0], sizes[-1]))]


def loss(params, batch, dot=jnp.dot):
    x, targets = batch
    for number in range(1, len(params) // 2 + 1):
        out = dot(x, params[f"W{number}"]) + params[f"b{number}"]
        x = jnp.maximum(out, 0)
    return jnp.mean(jnp.sum((out - targets) ** 2, axis=-1))


def summaries(tree):
    return {name: {"shape": list(x.shape), **sums(np.asarray(x)), "first": plain(np.asarray(x).reshape(-1)[:4])}
            for name, x in tree.items()}


def layouts():
    batch, both = jax.make_mesh((8,), ("batch",), devices=DEVICES[:8], axis_types=(AxisType.Auto,)), jax.make_mesh(
        (4, 2), ("batch", "model"), devices=DEVICES[:8], axis_types=(AxisType.Auto,) * 2)
    model = {"W2": PartitionSpec(None, "model"), "b2": PartitionSpec("model"), "W3": PartitionSpec("model", None)}
    return [("single", None, {}), ("8-way batch", batch, {}), ("4x2 batch x model", both, model)]


def mlp(case):
    step, runs = jax.jit(jax.value_and_grad(loss)), []
    with jax.threefry_partitionable(case["partitionable"]):
        start, data = init(case)
    for layout, mesh, specs in layouts():
        params, batch = start, data
        if mesh:
            params = {name: jax.device_put(x, NamedSharding(mesh, specs.get(name, PartitionSpec())))
                      for name, x in start.items()}
            batch = jax.device_put(data, NamedSharding(mesh, PartitionSpec("batch", None)))
        run = {"layout": layout, "loss": {}}
        for taken in range(31):
            value, gradients = step(params, batch)
            if taken in (0, 1, 10, 30):
                run["loss"][str(taken)] = single(value)
            if taken == 0:
                run["first_gradient"] = summaries({name: gradients[name] for name in params})
                if mesh:
                    for name, tree in (("specs", params), ("gradient_specs", gradients)):
                        run[name] = {k: listed(tree[k].sharding.spec) for k in params}
            params = {name: x - case["step_size"] * gradients[name] for name, x in params.items()}
        runs.append(run)
    return {"init": summaries({**start, "inputs": data[0], "targets": data[1]}), "runs": runs}


def mlp_full(case):
    """At the notebook's own size: some GB, and minutes on a CPU."""
    with jax.threefry_partitionable(case["partitionable"]):
        params, batch = init(case)

    def rounded(x, w):  # as a TPU multiplies
        return jnp.dot(*[one.astype(jnp.bfloat16).astype(jnp.float32) for one in (x, w)])
    return {"loss": {"0": single(jax.jit(loss)(params, batch))},
            "loss_bfloat16_operands": None if case["partitionable"] else single(loss(params, batch, rounded)),
            "init": summaries({**params, "inputs": batch[0], "targets": batch[1]})}

# ---- random questions, one function for each kind ----


def some_mesh(r, most=8, exact=False):
    """A mesh of at most `most` devices, or of exactly so many; some take the devices in another order, or only some."""
    while True:
        shape = [r.choice([1, 2, 2, 3, 4, 4, 5, 6, 8]) for _ in range(r.choice([1, 1, 2, 2, 3, 4]))]
        if product(shape) == most or not exact and product(shape) <= most:
            break
    ids = list(range(product(shape)))
    if r.random() < 0.5:
        ids = r.sample(range(most), len(ids))
    return {"shape": shape, "axis_names": list("abcd"[:len(shape)]), "device_ids": ids}


def some_spec(r, mesh, rank):
    """Each axis goes to one dimension or to none."""
    entries, names = [[] for _ in range(rank)], list(mesh["axis_names"])
    r.shuffle(names)
    for name in names:
        if rank and r.random() < 0.75:
            r.choice(entries).append(name)
    spec = [None if not e else e[0] if len(e) == 1 and r.random() < 0.8 else e for e in entries]
    while spec and spec[-1] is None and r.random() < 0.5:
        spec.pop()
    return spec


def parts(mesh, spec, rank):
    """How many parts each dimension is cut into."""
    sizes = dict(zip(mesh["axis_names"], mesh["shape"]))
    cut = [product(sizes[a] for a in ([e] if isinstance(e, str) else e or [])) for e in spec]
    return cut + [1] * (rank - len(cut))


def some_layout(r, most=8, ranks=(1, 2, 3, 4), exact=False):
    mesh, rank = some_mesh(r, most, exact), r.choice(ranks)
    spec = some_spec(r, mesh, rank)
    return mesh, spec, [n * r.choice([1, 1, 2, 3]) for n in parts(mesh, spec, rank)]


def processes_for(r, mesh):
    per = r.choice([1, 2, 3, 4, 8])
    return {"process_count": max(mesh["device_ids"]) // per + 1, "devices_per_process": per}


def ask_map(r, name):
    mesh, spec, shape = some_layout(r, r.choice([4, 8, 16, 60]), (0, 1, 2, 3, 4))
    if shape and r.random() < 0.03:
        shape[r.randrange(len(shape))] = 0
    return {"name": name, "mesh": mesh, **processes_for(r, mesh), "spec": spec, "global_shape": shape}


def ask_reshard(r, name):
    mesh, rank = some_mesh(r, r.choice([4, 8, 16])), r.choice([1, 2, 3])
    other = mesh if r.random() < 0.6 else some_mesh(r, r.choice([4, 8, 16]))
    sides = {"from": {"mesh": mesh, "spec": some_spec(r, mesh, rank)}, "to": {"mesh": other, "spec": some_spec(r, other, rank)}}
    cuts = zip(*[parts(side["mesh"], side["spec"], rank) for side in sides.values()])
    widest = max((mesh, other), key=lambda m: max(m["device_ids"]))
    return {"name": name, "global_shape": [math.lcm(*cut) * r.choice([1, 1, 2]) for cut in cuts],
            **processes_for(r, widest), **sides}


def ask_error(r, name):
    """Right or, mostly, broken in one way. Left out is what JAX lets pass and others may refuse: README.md lists it."""
    call = r.choice(["Mesh", "make_mesh", "NamedSharding", "shard_shape", "devices_indices_map", "device_put", "device_put",
                     "make_array_from_callback", "make_array_from_callback", "make_array_from_process_local_data",
                     "make_array_from_single_device_arrays", "make_array_from_single_device_arrays"])
    mesh, spec, shape = some_layout(r, 8, (2, 3, 4), exact=True)
    sizes, names = mesh["shape"], mesh["axis_names"]
    broken = r.random() < 0.8
    case = {"name": name, "call": call, "mesh": mesh}
    if call in ("Mesh", "make_mesh"):
        if broken and r.random() < 0.5:
            names.append("e")
        elif broken:
            sizes[r.randrange(len(sizes))] += 8
        if call == "make_mesh":
            mesh.pop("device_ids")
            case["device_count"] = 8
        return case
    case["spec"] = spec
    box = [n // cut for n, cut in zip(shape, parts(mesh, spec, len(shape)))]
    if call == "NamedSharding":
        if broken:
            spec += r.choice([["nope"], [["a", "a"]], ["a", "a"]])
        return case
    cut = [d for d, n in enumerate(parts(mesh, spec, len(shape))) if n > 1]
    how = r.choice(["indivisible", "rank", "box"]) if broken else None
    if how == "rank":  # JAX lets a null pass, and an axis of one device
        case["spec"] = [None] * len(shape) + [r.choice([name for name, n in zip(names, sizes) if n > 1])]
    elif how == "indivisible" and cut:
        shape[r.choice(cut)] += 1
    if call == "make_array_from_process_local_data":
        return {**case, "local_shape": shape, "global_shape": shape[1:] if how == "box" else r.choice([None, shape]),
                "process_count": 1}
    case["global_shape"] = shape
    if call == "make_array_from_callback" and how == "box":
        case["callback_shape"] = [n + 1 for n in box]
    if call == "make_array_from_single_device_arrays":
        order = r.sample(mesh["device_ids"], 8)
        if how == "box":
            order = r.choice([order[:7], order[:7] + order[:1]])
        case["arrays"] = [{"device": i, "shape": box, "dtype": "float32"} for i in order]
    return case


def given(r, shape, spec):
    mod = r.choice([5, 7, 11, 13])
    return {"shape": shape, "spec": spec, "fill": [r.randrange(1, 9), r.randrange(9), mod, mod // 2]}


def ask_dot(r, name):
    mesh = some_mesh(r, 8, exact=True)
    specs = [some_spec(r, mesh, 2) for _ in range(2)]
    (rows, left), (right, columns) = [parts(mesh, spec, 2) for spec in specs]
    rows, middle, columns = [n * r.choice([1, 2, 3]) for n in (rows, math.lcm(left, right), columns)]
    return {"op": "dot", "mesh": mesh, "inputs": [given(r, [rows, middle], specs[0]), given(r, [middle, columns], specs[1])]}


def ask_elementwise(r, name):
    op = r.choice(["sin", "relu", "copy", "add_scalar", "transpose", "sum", "mean", "max", "reshape", "add", "constrain"])
    mesh, spec, shape = some_layout(r, 8, (1, 2, 3), exact=True)
    case, inputs = {"op": op}, [given(r, shape, spec)]
    if op in ("sum", "mean", "max"):
        case.update(axis=r.choice([None, *range(len(shape))]), keepdims=r.random() < 0.5)
    elif op == "reshape":
        size, made = product(shape), []
        while size > 1:
            made.append(r.choice([n for n in range(2, size + 1) if size % n == 0]))
            size //= made[-1]
        case["new_shape"] = made or [1]
    elif op == "constrain":
        other = some_spec(r, mesh, len(shape))
        case["constrain_to"] = other
        inputs[0]["shape"] = [math.lcm(n, cut) for n, cut in zip(shape, parts(mesh, other, len(shape)))]
    elif op == "add":
        rank = r.randint(1, len(shape))
        other = some_spec(r, mesh, rank)
        shape = inputs[0]["shape"] = shape[:-rank] + [math.lcm(n, cut)
                                                      for n, cut in zip(shape[-rank:], parts(mesh, other, rank))]
        inputs.append(given(r, shape[-rank:], other))
    return {**case, "mesh": mesh, "inputs": inputs}


def ask_placement(r, name):
    """Named operands over the same devices in the same order have one spec, or one of them has P()."""
    ids = r.sample(range(8), r.choice([1, 2, 4, 8]))

    def operand():
        kind = r.choice(["named", "named", "named", "device", "uncommitted", "numpy"])
        if kind == "device":
            return {"kind": kind, "id": r.choice(ids)}
        if kind != "named":
            return {"kind": kind}
        order = ids if r.random() < 0.6 else r.sample(range(8), r.choice([1, 2, 4, 8]))
        mesh = {"shape": [len(order)], "axis_names": ["x"], "device_ids": order}
        return {"kind": kind, "mesh": mesh, "spec": r.choice([[], ["x"]]), "axis_types": "auto"}
    inputs = [operand(), operand()]
    if inputs[0]["kind"] != "numpy" and r.random() < 0.1:
        inputs[1] = {"kind": "scalar"}
    return {"op": "add", "name": name, "shape": [24], "inputs": inputs}


def ask_picture(r, name):
    mesh, spec, _ = some_layout(r, 8, (2,))
    return {"name": name, "shape": [840, 840], "mesh": mesh, "spec": spec}


def ask_number(r, name):
    calls = ["key", "split", "fold_in", "bits", "uniform", "normal", "randint", "permutation", "threefry2x32",
             "bits checksum", "uniform checksum", "normal checksum"]
    number = int(name.split()[-1])
    call = calls[number % len(calls)]

    def word():
        return r.getrandbits(32)
    if call == "threefry2x32":
        return {"call": call, "key": [word(), word()], "counter": [word(), word()]}
    case = {"call": call, "partitionable": number // len(calls) % 2 == 0, "seed": r.choice([word(), -word(), word() << 20])}
    small = [r.randint(1, 6) for _ in range(r.randint(0, 3))]
    low = r.randint(-1000, 1000)
    return {**case, **{
        "key": lambda: {}, "split": lambda: {"num": r.randint(1, 9)}, "fold_in": lambda: {"data": word()},
        "bits": lambda: {"shape": small, "width": r.choice([8, 16, 32])}, "normal": lambda: {"shape": small},
        "uniform": lambda: {"shape": small, "minval": low / 8, "maxval": low / 8 + r.randint(1, 99)},
        "randint": lambda: {"shape": small, "minval": low, "maxval": low + r.randint(1, 1000)},
        "permutation": lambda: {"n": r.randint(1, 100)},
        "bits checksum": lambda: {"shape": [r.randint(50, 500), r.randint(50, 500)], "width": 32},
        "uniform checksum": lambda: {"shape": [r.randint(50, 500), r.randint(50, 500)]},
        "normal checksum": lambda: {"shape": [r.randint(50, 500), r.randint(50, 500)]},
    }[call]()}


def ask_network(r, name):
    """Two, one for each kind of keys."""
    number = int(name.split()[-1])
    if number < 2:
        return {"name": name, "seed": r.getrandbits(31), "layers": [r.randint(8, 99), *(2 * r.randint(8, 99) for _ in range(3)), 10],
                "batch": 8 * r.randint(1, 9), "partitionable": number == 0, "step_size": 1e-05}


# ---- the files ----

LAYOUT = "mesh spec global_shape process_count devices_per_process "
OPERATION = "op axis keepdims new_shape constrain_to mesh inputs"
FILES = {
    "sharding_maps": ("name " + LAYOUT, sharding_maps, ask_map),
    "sharding_errors": ("name call inputs device_count in_spec local_shape callback_shape arrays new_shape " + LAYOUT,
                        sharding_errors, ask_error),
    "reshard": ("name from to " + LAYOUT, reshard, ask_reshard),
    "dot": (OPERATION, operation, ask_dot),
    "elementwise": (OPERATION, operation, ask_elementwise),
    "placement": ("op name shape inputs", placement, ask_placement),
    "visualize": ("name shape mesh spec", visualize, ask_picture),
    "random": ("call partitionable seed num data shape width minval maxval n key counter", random_numbers, ask_number),
    "mlp": ("name seed layers batch partitionable step_size", mlp, ask_network),
    "mlp_full": ("seed layers batch partitionable", mlp_full, None),
}


def read(name):
    with open(os.path.join(HERE, name + ".json"), encoding="utf-8") as file:
        return json.load(file)


def made(name, header, questions):
    """The text of a file: one case a line."""
    cases = []
    for question in questions:
        answers = FILES[name][1](question)
        case = {**{key: value for key, value in question.items() if key not in answers}, **answers}
        cases.append(json.dumps(case, ensure_ascii=False, separators=(",", ":")))
    head = [f"{json.dumps(key)}: {json.dumps(value)},\n" for key, value in header.items()]
    return "{" + "".join(head) + '"cases": [\n' + ",\n".join(cases) + "\n]}\n"


def differences(old, new, path=""):
    """Where two files differ: floats by more than rounding, the rest in anything but the words of an error."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *[key for key in new if key not in old]]:
            if key not in ("jax", "message"):
                yield from differences(old.get(key), new.get(key), f"{path}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (a, b) in enumerate(zip(old, new)):
            yield from differences(a, b, f"{path}[{i}]")
    elif isinstance(old, float) and isinstance(new, float):
        if not math.isclose(old, new, rel_tol=1e-6, abs_tol=1e-6):
            yield f"{path}: {old}, now {new}"
    elif old != new:
        yield f"{path}: {old}, now {new}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"some of {', '.join(FILES)}; all, if none is named")
    parser.add_argument("--check", action="store_true", help="write nothing; compare with the files of this folder")
    parser.add_argument("--seed", type=int, help="make random cases instead of this folder's")
    parser.add_argument("--count", type=int, default=120, help="how many random cases a file has (120)")
    parser.add_argument("--out", default=HERE, help="where to write; this folder, if not given")
    args = parser.parse_args()
    if args.seed is not None and args.out == HERE:
        parser.error("--seed needs --out: this folder keeps its own cases")
    os.makedirs(args.out, exist_ok=True)
    failed = False
    for name in args.files or FILES:
        (asked, _, invent), old = FILES[name], read(name)
        header = {key: value for key, value in old.items() if key != "cases"}
        header["jax"] = jax.__version__
        if args.seed is None:
            questions = [{key: value for key, value in case.items() if key in asked.split()} for case in old["cases"]]
        elif invent:
            r, header["set"] = random.Random(f"{name} {args.seed}"), f"seed {args.seed}"
            questions = [case for case in (invent(r, f"random {i}") for i in range(args.count)) if case]
        else:
            continue
        text = made(name, header, questions)
        path = os.path.join(args.out if not args.check else HERE, name + ".json")
        if not args.check:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            print(f"{path}: {len(questions)} cases")
            continue
        with open(path, encoding="utf-8") as file:
            same = file.read() == text
        found = [] if same else list(differences(old, json.loads(text)))
        failed = failed or bool(found)
        print(f"{name}.json: {len(questions)} cases,", "the same byte for byte" if same else
              "the same values" if not found else f"{len(found)} differences, the first {found[0]}", flush=True)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
