"""What JAX answers to words of shardrt.numpy that follow jax.numpy, jax.nn, jax.lax and optax: writes words.json, which
tests/ops/jax_words_spec.lua reads.

Made with JAX 0.10.2 and optax 0.2.8 on a CPU:  JAX_PLATFORMS=cpu python3 words.py [SEED] > words.json
A line is a case: a word, its arguments, and what it gives; with "grad", the gradients of the sum of what it gives, each
element times its weight, to those arguments. An array is [dtype, shape, its bytes in hex], a number {"number": "…"}, a
table with names {"table": {…}}. Another seed draws other numbers.
"""
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

rng = np.random.default_rng(int(sys.argv[1]) if len(sys.argv) > 1 else 0)


def floats(*shape, dtype="float32"):
    return rng.normal(size=shape).astype(jnp.dtype(dtype))


def wholes(low, high, *shape, dtype="int32"):
    return rng.integers(low, high, size=shape).astype(dtype)


def shown(x):
    if isinstance(x, dict):
        return {"table": {k: shown(v) for k, v in x.items()}}
    if isinstance(x, (list, tuple)):
        return [shown(v) for v in x]
    if isinstance(x, (bool, str, type(None))):
        return x
    if isinstance(x, (int, float)):
        return {"number": "%.17g" % x}
    x = np.asarray(x)
    return [str(x.dtype), list(x.shape), x.tobytes().hex()]


def is_array(x):
    return isinstance(x, (np.ndarray, np.generic))


def weighted(x):
    x = jnp.asarray(x)
    weights = ((np.arange(x.size) * 37) % 11 - 5) / 4
    return jnp.sum(x.astype("float32").ravel() * weights.astype("float32"))


def case(word, args, f, grad=(), loose=1):
    """f is given the arrays among the arguments, in their order; those of a table by their names' alphabet."""
    flat = [x for a in args for x in ([a[k] for k in sorted(a)] if isinstance(a, dict) else a if isinstance(a, list) else [a])
            if is_array(x)]
    found = f(*[jnp.asarray(x) for x in flat])
    line = {"word": word, "args": [shown(a) for a in args],
            "gives": [shown(x) for x in (found if isinstance(found, (tuple, list)) else [found])]}
    if loose != 1:
        line["loose"] = loose
    print(json.dumps(line, separators=(",", ":")))
    if not grad:
        return

    def loss(*some):
        every = [jnp.asarray(x) for x in flat]
        for i, x in zip(grad, some):
            every[i] = x
        out = f(*every)
        return sum(weighted(x) for x in (out if isinstance(out, (tuple, list)) else [out])
                   if jnp.issubdtype(x.dtype, jnp.floating))
    grads = jax.grad(loss, argnums=tuple(range(len(grad))))(*[jnp.asarray(flat[i]) for i in grad])
    line |= {"gives": [shown(x) for x in grads], "grad": [i + 1 for i in grad]}
    print(json.dumps(line, separators=(",", ":")))


# Dtypes, arrays that are made.
case("linspace", [0, 1], lambda: jnp.linspace(0, 1))
case("linspace", [-2.5, 7, 9], lambda: jnp.linspace(-2.5, 7, 9))
case("linspace", [1, 3, 4, False], lambda: jnp.linspace(1, 3, 4, endpoint=False))
case("linspace", [0, 10, 8, True, "int32"], lambda: jnp.linspace(0, 10, 8, dtype="int32"))
case("linspace", [3, 5, 1], lambda: jnp.linspace(3, 5, 1))
case("linspace", [3, 5, 0], lambda: jnp.linspace(3, 5, 0))
case("asarray", [[1.5, 2, 3]], lambda: jnp.asarray([1.5, 2, 3]))
case("asarray", [floats(4, 2), "bfloat16"], lambda x: jnp.asarray(x, "bfloat16"))
for n, m, k, t in [(4, None, None, None), (3, 5, 1, None), (5, 3, -2, "int32"), (0, None, None, None)]:
    case("eye", [n] + [v for v in [m, k, t] if v is not None], lambda: jnp.eye(n, m, k or 0, t or "float32"))
for word in ["tril", "triu"]:
    f = getattr(jnp, word)
    for k in [None, 1, -2, 40, -40]:
        for x in [floats(8, 4), floats(2, 4, 8), wholes(0, 9, 8, 8, dtype="uint8"), floats(4, 4, dtype="bfloat16")]:
            case(word, [x] + ([] if k is None else [k]), lambda x: f(x, k or 0),
                 grad=[0] if x.dtype == np.float32 and k == 1 else ())

# Repeated, padded.
for x, repeats in [(floats(8), 3), (floats(4, 2), [2]), (floats(4, 8), [2, 3]), (floats(4, 1), [3, 2, 4]),
                   (wholes(0, 9, 2, 8), [0, 2]), (floats(8, 8), [1, 1])]:
    case("tile", [x, repeats], lambda x: jnp.tile(x, repeats), grad=[0] if x.dtype == np.float32 else ())
for x, widths, value in [
        (floats(8, 4), [[1, 2], [0, 3]], None), (floats(8, 4), [[4, 4], [2, 2]], None), (floats(8), [3, 5], None),
        (floats(8, 4), 2, None), (floats(8, 4), [1, 3], None), (floats(4, 8), [[0, 0], [0, 0]], None),
        (floats(8, 4), [[1, 2], [0, 3]], 2.5), (wholes(0, 9, 8, 2), [[0, 8], [1, 1]], 7)]:
    case("pad", [x, widths] + ([] if value is None else ["constant", value]),
         lambda x: jnp.pad(x, widths, constant_values=value or 0), grad=[0] if x.dtype == np.float32 else ())

# Sizes.
for axis in [None, 0, -1, [0, 1]]:
    x = floats(8, 4)
    case("norm", [x] + ([] if axis is None else [axis]),
         lambda x: jnp.linalg.norm(x if axis is not None else x.ravel(), axis=tuple(axis) if isinstance(axis, list) else axis),
         grad=[0])
case("norm", [wholes(-3, 9, 4, 4), 1, True], lambda x: jnp.linalg.norm(x, axis=1, keepdims=True))
for near in [0, 1e-9, 3e-6, 1e-3]:
    x = floats(8, 4)
    y = (x.astype("float64") * (1 + near)).astype("float32")
    case("allclose", [x, y], lambda x, y: jnp.allclose(x, y))
INF, NAN = float("inf"), float("nan")
odd = np.array([1, INF, -INF, NAN, 0, 2, 3, 4], "float32")
same, other = odd.copy(), odd.copy()
same[3], other[1] = 0, 5
for x, y, more in [(odd, odd, []), (odd, odd, [1e-5, 1e-8, True]), (odd, other, [1e-5, 1e-8, True]),
                   (same, same, []), (wholes(0, 9, 8), wholes(0, 9, 8), []), (wholes(0, 9, 8), 3.0, [10.0])]:
    named = dict(zip(["rtol", "atol", "equal_nan"], more))
    case("allclose", [x, y] + more, (lambda x, y: jnp.allclose(x, y, **named)) if is_array(y) else
         (lambda x: jnp.allclose(x, y, **named)))

# Between layers.
kinks = np.array([0, -0.0, 1, -1, 1e-3, 20, -20, 3], "float32")
for x in [floats(8, 4), kinks, floats(4, 2, dtype="bfloat16"), wholes(-3, 9, 8)]:
    g = [0] if x.dtype == np.float32 else ()
    case("relu", [x], jax.nn.relu, grad=g)
    if x.dtype != np.int32:
        case("silu", [x], jax.nn.silu, grad=g)
        case("gelu", [x], jax.nn.gelu, grad=g)
        case("gelu", [x, False], lambda x: jax.nn.gelu(x, approximate=False), grad=g)

# Networks: what is normalised, and what is made small.
for o in [{}, {"epsilon": 0.1}, {"axis": 0}, {"axis": [0, 1]}]:
    case("layer_norm", [floats(8, 4)] + ([o] if o else []),
         lambda x: jax.nn.standardize(x, **{k: tuple(v) if isinstance(v, list) else v for k, v in o.items()},
                                      algorithm="stable"), grad=[0])
case("layer_norm", [floats(4, 2, 8), {"bias": floats(8), "scale": floats(8)}],
     lambda x, b, s: jax.nn.standardize(x) * s + b, grad=[0, 1, 2])
case("layer_norm", [floats(4, 8, dtype="bfloat16")], lambda x: jax.nn.standardize(x.astype("float32")).astype(x.dtype))
entropy = optax.softmax_cross_entropy_with_integer_labels
case("softmax_cross_entropy_with_integer_labels", [floats(8, 4), wholes(0, 4, 8)], entropy, grad=[0])
case("softmax_cross_entropy_with_integer_labels", [floats(4, 2, 8) * 50, wholes(-8, 8, 4, 2)], entropy, grad=[0])
case("softmax_cross_entropy_with_integer_labels", [floats(8, 4), np.array([0, 1, 9, 3], "int32"), 0],
     lambda x, y: entropy(x, y, axis=0))
case("softmax_cross_entropy_with_integer_labels", [floats(8), np.array(3, "uint8")], entropy)

# Optimisers: parameters after three steps. Schedules: at steps 0, 3, …, 27.
def trained(make):
    def run(p, *grads):
        optimizer = make()
        state = optimizer.init(p)
        for g in grads:
            updates, state = optimizer.update(g, state, p)
            p = optax.apply_updates(p, updates)
        return p
    return run


for o in [{}, {"learning_rate": 0.1, "weight_decay": 0.3, "beta1": 0.8, "beta2": 0.99, "epsilon": 1e-3}]:
    named = {{"beta1": "b1", "beta2": "b2", "epsilon": "eps"}.get(k, k): v for k, v in o.items()}
    case("adamw", [o, floats(8, 4), floats(8, 4), floats(8, 4), floats(8, 4)],
         trained(lambda: optax.adamw(**({"learning_rate": 1e-3} | named))), loose=20)
LINEAR = {"init_value": 0.5, "end_value": 0.1, "transition_steps": 2}
for word, make in [("sgd", optax.sgd), ("momentum", lambda r: optax.sgd(r, momentum=0.9)), ("adam", optax.adam)]:
    case(word + "_linear", [LINEAR, floats(8, 4), floats(8, 4), floats(8, 4), floats(8, 4)],
         trained(lambda: make(optax.linear_schedule(**LINEAR))), loose=20)  # optax rounds 1 - 0.999 to float32
for word, name, o in [
        ("constant", "constant_schedule", {"value": 0.25}), ("linear", "linear_schedule", LINEAR),
        ("linear", "linear_schedule", {"init_value": 0, "end_value": 3, "transition_steps": 9, "transition_begin": 5}),
        ("cosine", "cosine_decay_schedule", {"init_value": 2, "decay_steps": 20}),
        ("cosine", "cosine_decay_schedule", {"init_value": 2, "decay_steps": 11, "alpha": 0.1, "exponent": 2}),
        ("warmup_cosine", "warmup_cosine_decay_schedule",
         {"init_value": 0, "peak_value": 1, "warmup_steps": 7, "decay_steps": 20}),
        ("warmup_cosine", "warmup_cosine_decay_schedule",
         {"init_value": 0.1, "peak_value": 1, "warmup_steps": 3, "decay_steps": 25, "end_value": 0.2, "exponent": 3})]:
    case("schedule", [word, o], lambda: jnp.array([getattr(optax, name)(**o)(i) for i in range(0, 30, 3)], "float32"))
case("schedule_join", [LINEAR, {"init_value": 2, "decay_steps": 11}, [5]], lambda: jnp.array(
    [optax.join_schedules([optax.linear_schedule(**LINEAR), optax.cosine_decay_schedule(2, 11)], [5])(i)
     for i in range(0, 30, 3)], "float32"))


def clipped(limit):
    def run(*leaves):
        found = optax.clip_by_global_norm(limit).update(list(leaves), optax.EmptyState())[0]
        return found
    return run


for limit in [0.5, 100.0]:
    case("clip_by_global_norm", [floats(8, 4), floats(4, dtype="float32"), limit], clipped(limit))

# Some elements replaced; parts that begin where numbers and arrays say.
PLACES = np.array([3, 0, -1, 3, 2, -8], "int32")
for x, index, value in [
        (floats(8, 4), 2, floats(4)), (floats(8, 4), -3, 2.5), (floats(8), PLACES, floats(6)),
        (floats(8, 4), PLACES, floats(6, 4)), (floats(8, 2, 4), PLACES.reshape(2, 3), floats(4)),
        (wholes(0, 9, 8), np.array([5], "int64"), 7), (floats(8, 4), np.zeros([0], "int32"), 1.0)]:
    both = [0, len([a for a in [x, index, value] if is_array(a)]) - 1] if is_array(value) else [0]
    for word in ["set_at", "add_at"]:
        def f(x, *more, index=index, value=value, word=word):
            at = x.at[np.asarray(index)]
            value = more[-1] if is_array(value) else value
            return at.set(value) if word == "set_at" else at.add(value)
        is_float = x.dtype == np.float32
        case(word, [x, index, value], f, grad=both if is_float else ())
for starts, sizes in [([1, 2], [4, 2]), ([-3, 9], [8, 1]), ([7, -2], [3, 4]), ([0, 0], [8, 4])]:
    x, y = floats(8, 4), floats(*sizes)
    arrays = [np.array(s, "int32") for s in starts]
    case("dynamic_slice", [x, starts, sizes], lambda x: jax.lax.dynamic_slice(x, starts, sizes), grad=[0])
    case("dynamic_slice", [x, arrays, sizes], lambda x, *s: jax.lax.dynamic_slice(x, s, sizes), grad=[0])
    case("dynamic_update_slice", [x, y, starts], lambda x, y: jax.lax.dynamic_update_slice(x, y, starts), grad=[0, 1])
    case("dynamic_update_slice", [x, y, [starts[0], arrays[1]]],
         lambda x, y, s: jax.lax.dynamic_update_slice(x, y, (jnp.int32(starts[0]), s)), grad=[0, 1])

# Along one axis.
for shape, at, axis in [((8, 4), (8, 3), 1), ((8, 4), (2, 4), 0), ((4, 2, 8), (4, 2, 5), -1), ((4, 8, 2), (1, 3, 2), 1),
                        ((8,), (5,), 0), ((8, 4), (8, 1), None), ((2, 4, 8), (2, 4, 0), 2), ((1, 8), (8, 2), 1)]:
    n = shape[-1 if axis is None else axis]
    case("take_along_axis", [floats(*shape), wholes(-n, n, *at)] + ([] if axis is None else [axis]),
         lambda x, i: jnp.take_along_axis(x, i, -1 if axis is None else axis), grad=[0])
SPECIAL = np.array([1, NAN, -0.0, 0.0, INF, 1, -INF, -1], "float32")
ALL = "bool int8 uint8 int16 uint16 int32 uint32 float16 bfloat16 float32".split()
for t in ALL:
    x = wholes(-9, 9, 4, 40).astype(jnp.dtype(t)) if t != "float32" else floats(4, 40)
    for more in [[-1, True], [0]] if t in ["float32", "int8"] else [[]]:
        named = dict(zip(["axis", "descending"], more))
        case("argsort", [x] + more, lambda x: jnp.argsort(x, **named))
        case("sort", [x] + more, lambda x: jnp.sort(x, **named), grad=[0] if t == "float32" else ())
    case("top_k", [x, 5], lambda x: jax.lax.top_k(x, 5), grad=[0] if t == "float32" else ())
    for axis in [None, 0, -1]:
        case("cumsum", [x] + ([] if axis is None else [axis]), lambda x: jnp.cumsum(x, axis),
             grad=[0] if t == "float32" else (), loose=4)
for word in ["argsort", "sort"]:
    case(word, [SPECIAL], getattr(jnp, word))
    case(word, [floats(600), -1, True], lambda x: getattr(jnp, word)(x, descending=True))
case("cumsum", [floats(2, 600), 1], lambda x: jnp.cumsum(x.astype("float32"), 1), loose=100)
case("cumsum", [floats(4, 2, 8), 1, "bfloat16"], lambda x: jnp.cumsum(x, 1, "bfloat16"), loose=4)

# Drawn by keys: the words take a seed in place of a key.
P5 = np.array([0.1, 0.4, 0, 0.3, 0.2], "float32")
for seed in [0, 7]:
    key = jax.random.key(seed)
    for a, shape in [(5, [40]), (1000, [3, 4]), (floats(8), [6]), (floats(8, 4), [2, 3])]:
        for o in [{}, {"replace": False}] + ([{"axis": 1}] if is_array(a) and a.ndim == 2 else []):
            if o.get("replace", True) is False and a is not None and np.prod(shape) > (a if isinstance(a, int) else len(a)):
                continue
            case("choice", [seed, a, shape, o], (lambda x: jax.random.choice(key, x, tuple(shape), **o)) if is_array(a)
                 else (lambda: jax.random.choice(key, a, tuple(shape), **o)))
    for o in [{}, {"replace": False}]:
        case("choice", [seed, 5, [3], o | {"p": P5}], lambda p: jax.random.choice(key, 5, (3,), p=p, **o))
    case("categorical", [seed, floats(8, 4)], lambda x: jax.random.categorical(key, x))
    case("categorical", [seed, floats(8, 4), {"axis": 0}], lambda x: jax.random.categorical(key, x, axis=0))
    case("categorical", [seed, floats(4, 2, 8), {"shape": [3, 4, 2]}],
         lambda x: jax.random.categorical(key, x, shape=(3, 4, 2)))

# Sums of products by name, attention, convolution, pooling.
for spec, a, b in [
        ("ij,jk->ik", (8, 4), (4, 8)), ("ij,jk", (8, 4), (4, 2)), ("bij,bjk->bik", (4, 8, 2), (4, 2, 8)),
        ("btnh,bsnh->bnts", (4, 2, 8, 2), (4, 4, 8, 2)), ("bnts,bsnh->btnh", (2, 8, 4, 4), (2, 4, 8, 2)),
        ("btd,dnh->btnh", (4, 2, 8), (8, 4, 2)), ("btnh,nhd->btd", (4, 2, 8, 2), (8, 2, 4)),
        ("hnbt,nhd->tdb", (2, 8, 4, 2), (8, 2, 4)), ("i,i->", (8,), (8,)), ("i,j->ij", (8,), (4,)), ("i,j", (8,), (4,)),
        ("ij,ij->ij", (8, 4), (8, 4)), ("ij,ij", (8, 4), (8, 4)), ("ij,kl->", (8, 4), (4, 2)), ("ijk,jil->lk", (8, 4, 2), (4, 8, 4)),
        ("...ij,...jk->...ik", (4, 2, 8, 4), (2, 4, 2)), ("...ij,jk", (4, 2, 8), (8, 4)), ("ii,ij->j", (8, 8), (8, 4)),
        ("aib,bja->jiba", (4, 8, 2), (2, 4, 4)), ("abc,abd->abcd", (4, 2, 8), (4, 2, 2)), ("ab,c->bc", (4, 8), (2,)),
        ("ab,ab->ba", (4, 1), (4, 8)), ("bcij,bkcj->bik", (4, 2, 8, 2), (4, 4, 2, 2)),
        (" i j , k j -> k i ", (8, 4), (2, 4)), (",ij->ij", (), (4, 8))]:
    case("einsum", [spec, floats(*a), floats(*b)], lambda x, y: jnp.einsum(spec, x, y), grad=[0, 1], loose=4)
for spec, a in [("ij->ji", (8, 4)), ("ii->i", (8, 8)), ("ii", (4, 4)), ("ijk->k", (4, 2, 8)), ("iji->j", (4, 8, 4)),
                ("ba", (4, 8)), ("...a->a...", (4, 2, 8))]:
    case("einsum", [spec, floats(*a)], lambda x: jnp.einsum(spec, x), grad=[0])
case("einsum", ["ij,jk->ik", wholes(-9, 9, 8, 4), wholes(-9, 9, 4, 2)], lambda x, y: jnp.einsum("ij,jk->ik", x, y))
attend = jax.nn.dot_product_attention
for (t, s, n, k, h), o in [
        ((8, 8, 8, 8, 4), {}), ((8, 8, 4, 4, 2), {"is_causal": True}), ((4, 8, 8, 2, 4), {"scale": 0.3}),
        ((2, 4, 4, 1, 2), {"is_causal": True}),
        ((4, 8, 8, 8, 2), {"bias": floats(1, 8, 4, 8), "mask": rng.random([4, 1, 4, 8]) < 0.7})]:
    arrays = [floats(4, t, n, h), floats(4, s, k, h), floats(4, s, k, h)]
    plain = {name: v for name, v in o.items() if not is_array(v)}
    named = sorted(name for name in o if is_array(o[name]))
    case("attention", arrays + [o], lambda q, k, v, *more: attend(q, k, v, **plain, **dict(zip(named, more))),
         grad=[0, 1, 2], loose=8)


def convolved(o, layout):
    sizes = {"strides": o.get("strides", 1), "dilation": o.get("dilation", 1)}
    pair = {name: (v, v) if isinstance(v, int) else tuple(v) for name, v in sizes.items()}
    padding = o.get("padding", "SAME")
    kernel = "HWIO" if layout == "NHWC" else "OIHW"
    return lambda x, k: jax.lax.conv_general_dilated(
        x, k, pair["strides"], padding if isinstance(padding, str) else [tuple(p) for p in padding],
        rhs_dilation=pair["dilation"], dimension_numbers=(layout, kernel, layout))


for x, k, o in [
        ((8, 8, 8, 4), (3, 3, 4, 8), {}), ((4, 8, 4, 2), (3, 3, 2, 4), {"padding": "VALID"}), ((8, 5, 7, 1), (5, 5, 1, 8), {}),
        ((2, 8, 8, 8), (1, 1, 8, 4), {"strides": 2}), ((4, 9, 8, 2), (3, 2, 2, 4), {"strides": [2, 3], "padding": "SAME"}),
        ((2, 8, 8, 4), (3, 3, 4, 2), {"dilation": 2}), ((4, 6, 6, 2), (2, 2, 2, 2), {"padding": [[1, 2], [0, 3]], "strides": 2}),
        ((8, 4, 6, 6), (8, 4, 3, 3), {"layout": "NCHW"}), ((4, 2, 8, 8), (4, 2, 3, 3), {"layout": "NCHW", "padding": "VALID"})]:
    case("conv", [floats(*x), floats(*k)] + ([o] if o else []), convolved(o, o.get("layout", "NHWC")), grad=[0, 1], loose=16)


def pooled(window, o):
    layout, strides = o.get("layout", "NHWC"), o.get("strides", 1)
    strides = (strides, strides) if isinstance(strides, int) else tuple(strides)
    padding = o.get("padding", "VALID")

    def around(pair, one):
        return (one, *pair, one) if layout == "NHWC" else (one, one, *pair)
    if not isinstance(padding, str):
        padding = around([tuple(p) for p in padding], (0, 0))
    return lambda x: jax.lax.reduce_window(x, -INF, jax.lax.max, around(window, 1), around(strides, 1), padding)


for x, window, o in [
        ((8, 8, 8, 4), [2, 2], {"strides": [2, 2]}), ((4, 8, 8, 2), [2, 2], {}), ((2, 7, 9, 8), [3, 2], {"strides": 2, "padding": "SAME"}),
        ((4, 2, 8, 8), [2, 2], {"strides": 2, "layout": "NCHW"}), ((4, 6, 6, 2), [3, 3], {"padding": [[1, 0], [0, 2]]})]:
    ties = np.maximum(floats(*x), 0)
    case("max_pool", [ties, window] + ([o] if o else []), pooled(window, o), grad=[0])

# Sums by name keep their dtype, 0 is above -0 for top_k, Lua's numbers have all digits, linspace rounds float32 down.
ZEROS = np.array([-0.0, 0.0, 1, -0.0, 0.0, -1, 0.0, 2], "float32")
TRUE = np.arange(32).reshape(4, 8) % 8 > 4
case("einsum", ["ij->j", np.full([4, 8], 200, "uint8")], lambda x: jnp.einsum("ij->j", x))
case("einsum", ["ij->j", TRUE], lambda x: jnp.einsum("ij->j", x))
case("einsum", ["ij,k->jk", np.full([4, 8], 100, "int8"), np.ones([4], "int8")], lambda x, y: jnp.einsum("ij,k->jk", x, y))
for t in ["float32", "bfloat16"]:
    case("top_k", [ZEROS.astype(jnp.dtype(t)), 7], lambda x: jax.lax.top_k(x, 7))
case("set_at", [np.zeros([8], "int32"), 1, 16777217], lambda x: x.at[1].set(16777217))
case("add_at", [np.zeros([8], "uint32"), np.array([2, 2], "int32"), 16777217], lambda x, i: x.at[i].add(16777217))
case("linspace", [0, 49, 50, True, "int32"], lambda: jnp.linspace(0, 49, 50, dtype="int32"))
case("linspace", [-3, 7, 11, True, "int8"], lambda: jnp.linspace(-3, 7, 11, dtype="int8"))
