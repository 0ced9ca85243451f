"""Random programs of shardrt.numpy's words, and what JAX answers at each of their steps.

    JAX_PLATFORMS=cpu python3 generate.py [--programs 100] [--seed 1] [--small] > FILE

programs.jsonl begins with the 64 that JAX 0.10.2 gives to --small, from seed 1 on; behind them stand what was mended.
A line is a program: its seed, its mesh of 8 devices, and its lines. A line of a program is an input, a word with its
arguments, or the gradients of one of its values; it makes one value or more, which are numbered from 1. An array is
[dtype, shape, its bytes in hex]; an input with "host" stays a host array. An argument is {"value": n}, {"number": "…"},
{"table": {…}}, {"key": seed, "path": [["split", n, i], ["fold_in", n], …]}, {"sharding": spec}, null, or plain. `near` is how far any element may be from JAX's: 0 where each step before it is exact.

How far rounding may lead is found by trying: beside each value goes a copy that every inexact step moves by a few
roundings, and what comes of it is the measure. A step that makes much of roundings (floor, argsort, …) takes exact
values only. `index` is where each device's part lies, for words whose result has one place in every program: those that
keep or drop dimensions of one operand, whose own place is known. XLA makes erf whole on each device, unlike all others.

Left out is what docs/compute.md says is not JAX's: comparisons of uint32 with signed numbers, numbers below 2^-126,
whole numbers to negative powers, indices outside an array, and linspace of whole numbers where float32 comes so near to
one that its last rounding decides (XLA's differs with the length).
"""
import argparse
import json
import os
import random
import sys
import warnings

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
warnings.filterwarnings("ignore")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P  # noqa: E402

FLOATS = {"float32": 2.0 ** -22, "float16": 2.0 ** -10, "bfloat16": 2.0 ** -7}
SIGNED = ["int32", "int8", "int16"]
UNSIGNED = ["uint32", "uint8"]
WHOLES = SIGNED + UNSIGNED
DTYPES = ["float32"] * 6 + ["bfloat16", "float16"] * 2 + ["int32"] * 2 + ["int8", "uint32", "bool", "uint8", "int16"]
MESHES = [([8], ["x"]), ([2, 4], ["x", "y"]), ([4, 2], ["x", "y"]), ([2, 2, 2], ["x", "y", "z"]), ([1, 8], ["x", "y"])]


class Unfit(Exception):
    """No such step here."""


class Value:
    def __init__(self, number, x, shaken, exact, placed, known, host=False):
        self.number, self.x, self.shaken, self.exact, self.placed = number, x, shaken, exact, placed
        self.known = known  # where it lies is the same for all
        self.host = host  # it is no array, and no parameter
        self.dtype, self.shape, self.ndim, self.size = str(x.dtype), tuple(x.shape), x.ndim, x.size

    @property
    def is_float(self):
        return self.dtype in FLOATS


class Key:
    """A key of a seed, or one of those that are made of it."""
    def __init__(self, rng):
        self.seed, self.path = rng.randrange(2 ** 31), []
        self.key = jax.random.key(self.seed)
        while rng.random() < 0.3:
            if rng.random() < 0.5:
                self.path.append(["fold_in", rng.randrange(2 ** 31)])
                self.key = jax.random.fold_in(self.key, self.path[-1][1])
            else:
                n = rng.randint(1, 5)
                self.path.append(["split", n, rng.randrange(n)])
                self.key = jax.random.split(self.key, n)[self.path[-1][2]]


class Placed:
    def __init__(self, spec):
        self.spec = spec


def hexed(x):
    x = np.asarray(x)
    return [str(x.dtype), list(x.shape), x.tobytes().hex()]


def shown(x):
    if isinstance(x, Value):
        return {"value": x.number}
    if isinstance(x, Key):
        return {"key": x.seed} | ({"path": x.path} if x.path else {})
    if isinstance(x, Placed):
        return {"sharding": x.spec}
    if isinstance(x, dict):
        return {"table": {k: shown(v) for k, v in x.items()}}
    if isinstance(x, (list, tuple)):
        return [shown(v) for v in x]
    if isinstance(x, (bool, str, type(None))):
        return x
    return {"number": repr(x)}


def values_in(x):
    if isinstance(x, Value):
        return [x]
    if isinstance(x, dict):
        return [v for k in sorted(x) for v in values_in(x[k])]
    if isinstance(x, (list, tuple)):
        return [v for each in x for v in values_in(each)]
    return []


def largest(x):
    x = np.abs(np.asarray(x).astype("float64"))
    x = x[np.isfinite(x)]
    return float(x.max()) if x.size else 0.0


class Program:
    def __init__(self, seed, small, mesh_of):
        self.seed, self.rng, self.draw = seed, random.Random(seed), np.random.default_rng(seed)
        self.sizes, self.names = self.rng.choice(MESHES)
        self.mesh = mesh_of(tuple(self.sizes), tuple(self.names))
        self.small = small
        self.dims = [self.rng.choice([8, 4, 8, 16, 3, 5, 2, 1, 7] if not small else [8, 4, 2, 3]) for _ in range(3)]
        self.hollow = not small and self.rng.random() < 0.05
        if self.hollow:
            self.dims[0] = 0
        self.limit = 64 if small else 512  # elements of an input; of a result twice as many
        if not small and self.rng.random() < 0.04:
            self.limit, self.dims = 16384, [self.rng.choice([33, 64, 128, 130, 257, 1000]) for _ in range(3)]
        self.special = self.rng.random() < 0.1
        self.placed_in_jax = self.rng.random() < 0.3
        self.values, self.lines, self.steps = [], [], []

    # ---- values

    def shape(self, ndim=None):
        ndim = self.rng.choice([1, 2, 2, 2, 3]) if ndim is None else ndim
        while True:
            shape = [self.rng.choice(self.dims) if self.rng.random() < 0.9 else 1 for _ in range(ndim)]
            if int(np.prod(shape)) <= self.limit:
                return shape

    def spec(self, shape):
        free = list(self.names)
        self.rng.shuffle(free)
        spec = []
        for size in shape:
            taken = []
            while free and self.rng.random() < 0.55:
                ways = self.sizes[self.names.index(free[0])]
                if size % ways:
                    break
                size //= ways
                taken.append(free.pop(0))
            spec.append(None if not taken else taken[0] if len(taken) == 1 else taken)
        return spec

    def place(self, x, spec):
        if spec is None or not self.placed_in_jax:
            return x
        return jax.device_put(x, NamedSharding(self.mesh, P(*[tuple(e) if isinstance(e, list) else e for e in spec])))

    def index(self, x):
        """Where each device's part lies."""
        found = x.sharding.devices_indices_map(x.shape)
        return [[list(s.indices(n)[:2]) for s, n in zip(found[d], x.shape)] for d in self.mesh.devices.flat]

    def numbers(self, dtype, shape):
        kind = self.rng.random()
        if dtype == "bool":
            return self.draw.integers(0, 2, size=shape).astype(bool)
        if dtype in WHOLES:
            info = np.iinfo(dtype)
            if kind < 0.2:
                return self.draw.integers(info.min, info.max, size=shape, endpoint=True, dtype="int64").astype(dtype)
            return self.draw.integers(max(info.min, -9), 9, size=shape, endpoint=True).astype(dtype)
        x = np.asarray(self.draw.integers(-16, 17, size=shape) / 4 if kind < 0.4 else self.draw.normal(size=shape))
        if self.special and x.size:
            for value in [np.nan, np.inf, -np.inf, 0.0, -0.0, 3e4]:
                if self.rng.random() < 0.5:
                    x.flat[self.rng.randrange(x.size)] = value
        return x.astype(jnp.dtype(dtype))

    def input(self, dtype=None, shape=None):
        dtype = dtype or self.rng.choice(DTYPES)
        shape = self.shape() if shape is None else shape
        x = self.numbers(dtype, shape)
        spec = None if self.rng.random() < 0.12 else self.spec(shape)
        return self.add_input(x, spec)

    def add_input(self, x, spec):
        line = {"input": hexed(x)}
        if spec is not None:
            line["spec"] = spec
        host = spec is None and not self.small and self.rng.random() < 0.3
        if host:
            line["host"] = True
        placed = self.place(jnp.asarray(x), spec)
        value = Value(len(self.values) + 1, placed, placed, True, spec is not None, spec is not None, host)
        self.values.append(value)
        self.lines.append(line)
        return value

    def helper(self, x):
        """An operand that the step needs: whole numbers in a range, a kernel."""
        x = np.asarray(x)
        return self.add_input(x, None if self.rng.random() < 0.5 else self.spec(x.shape))

    def pick(self, fits=lambda v: True):
        found = [v for v in self.values if fits(v)]
        if not found:
            raise Unfit
        recent = found[-3:]
        return self.rng.choice(recent if self.rng.random() < 0.6 else found)

    def fit(self, kinds, exact=False, fits=lambda v: True):
        return self.pick(lambda v: v.dtype in kinds and (v.exact or not exact) and (v.size > 0 or self.hollow) and fits(v))

    def axis(self, x, lists=True, none=True):
        way = self.rng.random()
        if way < 0.25 and none or x.ndim == 0:
            return None
        if way < 0.45 and lists and x.ndim > 1:
            return self.rng.sample(range(x.ndim), self.rng.randint(1, x.ndim))
        return self.rng.randrange(-x.ndim, x.ndim)

    # ---- steps

    def step(self, word, args, f, exact=True, scale=None, keeps=False):
        """One word. `exact`: of exact operands it makes what is exact. `scale(*abs)`: how large what it adds up is."""
        operands = values_in(args)
        found = f(*[v.x for v in operands])
        many = isinstance(found, (tuple, list))
        found = list(found) if many else [found]
        shaken = f(*[v.shaken for v in operands])
        shaken = list(shaken) if many else [shaken]
        exact = exact and all(v.exact for v in operands)
        made, gives, nears = [], [], []
        for x, moved in zip(found, shaken):
            dtype = str(x.dtype)
            if dtype not in FLOATS and not exact and any(not v.exact for v in operands):
                raise Unfit  # roundings would change it
            if x.size > max(1024, 2 * self.limit) or x.size == 0 and not self.hollow:
                raise Unfit
            near = 0.0
            if dtype in FLOATS:
                plain = np.asarray(x).astype("float64")
                if not self.special and (not np.isfinite(plain).all() or largest(plain) > 5e3):
                    raise Unfit
                low = np.abs(plain)
                if ((low > 0) & (low < 1e-6)).any():
                    raise Unfit
                if not exact:
                    size = largest(plain)
                    if scale:
                        size = max(size, largest(scale(*[jnp.abs(v.x) for v in operands])))
                    worst = max([FLOATS[dtype]] + [0 if v.exact else FLOATS.get(v.dtype, 0) for v in operands])
                    noise = worst * size
                    signs = self.draw.choice([-1.0, 1.0], size=x.shape)
                    moved = (jnp.asarray(moved, "float32") + noise * jnp.asarray(signs, "float32")).astype(x.dtype)
                    apart = np.abs(np.asarray(moved).astype("float64") - plain)
                    near = 4 * (float(np.nanmax(apart[np.isfinite(apart)], initial=0.0))) + noise
                    if near > 0.03 * max(size, 1e-3) * (8 if worst > 1e-3 else 1):
                        raise Unfit
            made.append((x, x if exact else moved))
            gives.append(hexed(x))
            nears.append(near)
        line = {"word": word, "args": shown(args), "gives": gives}
        if any(nears):
            line["near"] = [float("%.3g" % n) for n in nears]
        placed = any(v.placed for v in operands)
        known = keeps and placed and all(v.known for v in operands)
        if known and self.placed_in_jax:
            line["index"] = self.index(made[0][0])
        first = len(self.values)
        for x, moved in made:
            self.values.append(Value(len(self.values) + 1, x, moved, exact, placed, known))
        self.lines.append(line)
        self.steps.append((f, [v.number for v in operands], range(first + 1, len(self.values) + 1), many))

    def gradient(self):
        """The gradients of the last float32 value to every float32 input that it comes from."""
        depends = {}
        for _, numbers, made, _ in self.steps:
            for n in made:
                depends[n] = set().union(*[depends.get(m, {m}) for m in numbers]) if numbers else set()
        target = next((v for v in reversed(self.values) if v.is_float and v.number in depends), None)
        if target is None or self.special:
            return
        steps, needed = [], {target.number}
        for step in reversed(self.steps):
            if needed & set(step[2]):
                steps.insert(0, step)
                needed |= set(step[1]) | set(step[2])
        params = [n for n in sorted(depends[target.number]) if self.values[n - 1].dtype == "float32"
                  and not self.values[n - 1].host and self.values[n - 1].size]
        if not params or not target.size:
            return
        rough = max(1e-5, 4 * max(FLOATS[v.dtype] for v in self.values if v.number in needed and v.is_float))
        weights = ((np.arange(target.size) * 37) % 11 - 5) / 4

        def loss(given):
            every = {v.number: v.x for v in self.values if v.number not in depends}
            every.update(zip(params, given))
            for f, numbers, made, many in steps:
                out = f(*[every[n] for n in numbers])
                every.update(zip(made, out if many else [out]))
            x = every[target.number]
            return jnp.sum(x.ravel().astype("float32") * jnp.asarray(weights, "float32"))

        at = [self.values[n - 1].x for n in params]
        found = jax.grad(loss)(at)
        moved = jax.grad(loss)([x * (1 + 1e-6 * jnp.asarray(self.draw.choice([-1.0, 1.0], size=x.shape), "float32"))
                                for x in at])
        nears = []
        for x, other in zip(found, moved):
            if not np.isfinite(x).all() or largest(x) > 1e4:
                return
            apart = largest(np.asarray(x) - np.asarray(other))
            near = 8 * apart + rough * max(largest(x), 1e-2)
            if near > (0.03 if rough < 1e-3 else 0.2) * max(largest(x), 1e-2):
                return
            nears.append(float("%.3g" % near))
        self.lines.append({"gradient": target.number, "to": params, "gives": [hexed(x) for x in found], "near": nears})

    def line(self):
        return {"seed": self.seed, "mesh": [self.sizes, self.names], "lines": self.lines}


# ---- what may be a step: each function tries to append one, or raises Unfit

NUMERIC = list(FLOATS) + WHOLES
ALL = NUMERIC + ["bool"]


def unary_exact(p):
    word = p.rng.choice(["negative", "abs", "square", "sign", "floor", "ceil", "round"])
    x = p.fit(FLOATS if word in ("floor", "ceil", "round") else NUMERIC, exact=word in ("sign", "floor", "ceil", "round"))
    p.step("np." + word, [x], getattr(jnp, word), keeps=True)


def unary(p):
    word = p.rng.choice(["sin", "cos", "tan", "tanh", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "reciprocal",
                         "erf", "sigmoid", "relu", "silu", "gelu", "gelu"])
    x = p.fit(list(FLOATS) if word in ("reciprocal", "rsqrt", "erf", "sigmoid", "silu", "gelu") else NUMERIC)
    if word in ("log", "log1p", "sqrt", "rsqrt") and not p.small and p.rng.random() < 0.7:  # most values have none
        x = p.helper(np.abs(p.numbers(p.rng.choice(list(FLOATS)), p.shape())) + 0.25)
    if word == "gelu" and p.rng.random() < 0.5:
        p.step("np.gelu", [x, False], lambda a: jax.nn.gelu(a, approximate=False), exact=False, scale=jnp.abs)
        return
    f = {"rsqrt": jax.lax.rsqrt, "erf": jax.lax.erf, "sigmoid": jax.nn.sigmoid, "relu": jax.nn.relu,
         "silu": jax.nn.silu, "gelu": jax.nn.gelu}.get(word) or getattr(jnp, word)
    p.step("np." + word, [x], f, exact=word == "relu", keeps=word not in ("silu", "gelu", "relu", "erf"),
           scale=jnp.abs if word == "gelu" else None)  # 1 + tanh cancels


def broadcast_with(x):
    def fits(v):
        try:
            return int(np.prod(np.broadcast_shapes(x.shape, v.shape))) <= max(512, x.size, v.size)
        except ValueError:
            return False
    return fits


def number(p, x):
    if x.is_float and p.rng.random() < 0.6:
        return p.rng.choice([0.5, -1.25, 2.75, 0.1])
    return p.rng.choice([1, 2, 3] + ([-2] if x.dtype not in UNSIGNED else []))


def pair(p, kinds, exact=False, numbers=True):
    x = p.fit(kinds, exact)
    if numbers and p.rng.random() < 0.3:
        n = number(p, x)
        return ([x, n], lambda f: lambda a: f(a, n)) if p.rng.random() < 0.7 else ([n, x], lambda f: lambda a: f(n, a))
    y = p.fit(kinds, exact, broadcast_with(x))
    return [x, y], lambda f: f


def binary(p):
    word = p.rng.choice(["add", "subtract", "multiply", "divide", "maximum", "minimum", "add", "multiply"])
    args, f = pair(p, NUMERIC)
    p.step("np." + word, args, f(getattr(jnp, word)), exact=word != "divide")


def binary_stepped(p):
    word = p.rng.choice(["floor_divide", "remainder", "power", "arctan2"])
    if word == "power" and p.rng.random() < 0.4:
        x = p.fit(NUMERIC)
        if x.is_float:
            y = p.fit(FLOATS, fits=broadcast_with(x))
        else:
            y = p.helper(p.draw.integers(0, 4, size=x.shape[-1:]).astype(x.dtype))
        p.step("np.power", [x, y], jnp.power, exact=not x.is_float)
    elif word == "power":
        x = p.fit(NUMERIC)
        n = p.rng.choice([0, 1, 2, 3] + ([-1, 0.5] if x.is_float else []))
        p.step("np.power", [x, n], lambda a: jnp.power(a, n), exact=not x.is_float)
    elif word == "arctan2":
        args, f = pair(p, list(FLOATS))
        p.step("np.arctan2", args, f(jnp.arctan2), exact=False)
    else:
        args, f = pair(p, NUMERIC, exact=True)
        p.step("np." + word, args, f(getattr(jnp, word)))


def compare(p):
    word = p.rng.choice(["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"])
    args, f = pair(p, ALL, exact=True)
    kinds = {v.dtype for v in values_in(args)}
    if "uint32" in kinds and (kinds & set(SIGNED) or len(values_in(args)) == 1):
        raise Unfit
    p.step("np." + word, args, f(getattr(jnp, word)))


def logical(p):
    word = p.rng.choice(["logical_and", "logical_or", "logical_not", "isnan", "isfinite"])
    if word in ("isnan", "isfinite"):
        p.step("np." + word, [p.fit(FLOATS, True)], getattr(jnp, word), keeps=True)
    elif word == "logical_not":
        p.step("np." + word, [p.fit(ALL, True)], jnp.logical_not, keeps=True)
    else:
        args, f = pair(p, ALL, True, False)
        p.step("np." + word, args, f(getattr(jnp, word)))


def where(p):
    c = p.fit(["bool"], True)
    x = p.fit(ALL, False, broadcast_with(c))
    way = p.rng.random()
    if way < 0.4 and x.dtype != "bool":
        n = number(p, x)
        if way < 0.2:
            p.step("np.where", [c, x, n], lambda a, b: jnp.where(a, b, n))
        else:
            p.step("np.where", [c, n, x], lambda a, b: jnp.where(a, n, b))
        return
    y = p.fit(NUMERIC, False, lambda v: broadcast_with(x)(v) and broadcast_with(c)(v))
    p.step("np.where", [c, x, y], jnp.where)


def clip(p):
    x = p.fit(NUMERIC)
    way = p.rng.random()
    if way < 0.2:
        y = p.fit(NUMERIC, False, broadcast_with(x))
        p.step("np.clip", [x, y], lambda a, b: jnp.clip(a, b))
        return
    if way < 0.4:
        n = number(p, x)
        p.step("np.clip", [x, None, n], lambda a: jnp.clip(a, None, n))
        return
    low, high = p.rng.choice([(0, 1), (1, 5), (0, 3)])
    p.step("np.clip", [x, low, high], lambda a: jnp.clip(a, low, high))


def astype(p):
    dtype = p.rng.choice(ALL)
    x = p.fit(ALL, exact=dtype not in FLOATS)
    p.step("np.astype", [x, dtype], lambda a: a.astype(dtype), keeps=True)


def reduce(p):
    word = p.rng.choice(["sum", "mean", "prod", "max", "min", "any", "all", "var", "std", "sum", "mean"])
    x = p.fit(ALL if word in ("sum", "any", "all", "max", "min") else NUMERIC, exact=word in ("any", "all"))
    if word in ("max", "min") and x.dtype == "bool":
        raise Unfit
    axis, keep = p.axis(x), p.rng.random() < 0.3
    named = tuple(axis) if isinstance(axis, list) else axis
    args = [x] + ([] if axis is None else [axis, keep])

    def f(a):
        return getattr(jnp, word)(a, axis=named, keepdims=keep and axis is not None)

    def scale(a):
        if word in ("var", "std"):
            return jnp.square(a.astype("float32")).max() if word == "var" else a.max()
        return f(a)
    p.step("np." + word, args, f, exact=word in ("max", "min", "any", "all") or word in ("sum", "prod") and not x.is_float,
           scale=scale if word in ("sum", "mean", "var", "std") and x.dtype != "bool" else None, keeps=axis is not None)


def arg_reduce(p):
    word = p.rng.choice(["argmax", "argmin"])
    x = p.fit(NUMERIC, exact=True)
    axis = p.axis(x, lists=False)
    keep = axis is not None and p.rng.random() < 0.3
    p.step("np." + word, [x] + ([] if axis is None else [axis, keep]),
           lambda a: getattr(jnp, word)(a, axis=axis, keepdims=keep))


def softmax(p):
    word = p.rng.choice(["softmax", "log_softmax"])
    x = p.fit(FLOATS, fits=lambda v: v.ndim > 0)
    axis = p.rng.randrange(-x.ndim, x.ndim)
    p.step("np." + word, [x, axis], lambda a: getattr(jax.nn, word)(a, axis=axis), exact=False, scale=lambda a: a)


def product(p):
    x = p.fit(ALL, fits=lambda v: v.ndim > 0)
    word = p.rng.choice(["dot", "matmul"])
    y = p.fit(ALL, fits=lambda v: v.ndim > 0 and v.shape[-2 if v.ndim > 1 else 0] == x.shape[-1] and
              (v.ndim < 3 and x.ndim < 3 or word == "matmul"))
    if x.dtype == "bool" or y.dtype == "bool":
        raise Unfit
    f = getattr(jnp, word)
    p.step("np." + word, [x, y], f, exact=not (x.is_float or y.is_float), scale=f)


def product_made(p):
    x = p.fit(FLOATS, fits=lambda v: v.ndim > 0)
    w = p.helper(p.numbers(x.dtype if p.rng.random() < 0.7 else p.rng.choice(list(FLOATS)), (x.shape[-1], p.rng.choice(p.dims))))
    if p.rng.random() < 0.3 and (x.placed or w.placed):
        spec = p.spec(x.shape[:-1] + w.shape[-1:])
        p.step(p.rng.choice(["np.dot", "np.matmul"]), [x, w, {"sharding": Placed(spec)}], jnp.dot, exact=False, scale=jnp.dot)
        lies(p, spec)
        return
    p.step("np.dot", [x, w], jnp.dot, exact=False, scale=jnp.dot)


def einsum(p):
    x = p.fit(NUMERIC, fits=lambda v: 0 < v.ndim < 4)
    letters = {}
    pool = list("ijklmn")
    p.rng.shuffle(pool)
    left = [pool.pop() for _ in range(x.ndim)]
    for name, size in zip(left, x.shape):
        letters[name] = size
    if p.rng.random() < 0.25:
        out = p.rng.sample(left, p.rng.randint(0, len(left)))
        spec = "%s->%s" % ("".join(left), "".join(out))
        args = [spec, x]
    else:
        y = p.fit([x.dtype], fits=lambda v: 0 < v.ndim < 4)
        right = []
        for size in y.shape:
            same = [n for n in left if letters[n] == size and n not in right]
            name = p.rng.choice(same) if same and p.rng.random() < 0.8 else None
            if name is None:
                if not pool:
                    raise Unfit
                name = pool.pop()
                letters[name] = size
            right.append(name)
        every = sorted(set(left + right))
        out = p.rng.sample(every, p.rng.randint(0, min(3, len(every))))
        spec = "%s,%s->%s" % ("".join(left), "".join(right), "".join(out))
        args = [spec, x, y]

    def f(*given):
        return jnp.einsum(spec, *given)
    p.step("np.einsum", args, f, exact=not x.is_float, scale=f)


def reshape(p):
    x = p.fit(ALL)
    sizes, left = [], x.size
    while left > 1 and len(sizes) < 3:
        whole = [d for d in range(2, left + 1) if left % d == 0]
        n = p.rng.choice(whole)
        sizes.append(n)
        left //= n
    if left > 1:
        sizes[-1] *= left
    if p.rng.random() < 0.3:
        sizes.insert(p.rng.randint(0, len(sizes)), 1)
    if not sizes:
        raise Unfit
    if p.rng.random() < 0.3:
        sizes[p.rng.randrange(len(sizes))] = -1
    p.step("np.reshape", [x, sizes], lambda a: jnp.reshape(a, sizes))


def transpose(p):
    x = p.fit(ALL, fits=lambda v: v.ndim > 1)
    axes = p.rng.sample(range(x.ndim), x.ndim) if p.rng.random() < 0.7 else None
    p.step("np.transpose", [x] + ([axes] if axes else []), lambda a: jnp.transpose(a, axes), keeps=True)


def sizes_of_one(p):
    if p.rng.random() < 0.6:
        x = p.fit(ALL, fits=lambda v: v.ndim < 4)
        axis = p.rng.randrange(-x.ndim - 1, x.ndim + 1)
        p.step("np.expand_dims", [x, axis], lambda a: jnp.expand_dims(a, axis))
    else:
        x = p.fit(ALL, fits=lambda v: 1 in v.shape)
        axis = x.shape.index(1)
        if p.rng.random() < 0.5:
            ones = [i for i, n in enumerate(x.shape) if n == 1]
            p.step("np.squeeze", [x, ones], lambda a: jnp.squeeze(a, tuple(ones)))
            return
        p.step("np.squeeze", [x, axis], lambda a: jnp.squeeze(a, axis))


def broadcast_to(p):
    x = p.fit(ALL, fits=lambda v: v.ndim < 3)
    to = [p.rng.choice([2, 3, 4])] + [p.rng.choice(p.dims) if n == 1 else n for n in x.shape]
    p.step("np.broadcast_to", [x, to], lambda a: jnp.broadcast_to(a, to))


def joined(p):
    x = p.fit(ALL, fits=lambda v: v.ndim > 0)
    word, axis = p.rng.choice(["concatenate", "stack"]), p.rng.randrange(-x.ndim, x.ndim)

    def fits(v):
        if word == "stack":
            return v.shape == x.shape
        at = axis % x.ndim
        return v.ndim == x.ndim and all(a == b for i, (a, b) in enumerate(zip(v.shape, x.shape)) if i != at)
    arrays = [x] + [p.fit(ALL, fits=fits) for _ in range(p.rng.randint(1, 2))]
    p.step("np." + word, [arrays, axis], lambda *a: getattr(jnp, word)(a, axis=axis))


def split(p):
    x = p.fit(ALL, fits=lambda v: v.ndim > 0 and max(v.shape) > 1)
    axis = p.rng.choice([i for i, n in enumerate(x.shape) if n > 1])
    n = x.shape[axis]
    ways = [d for d in range(2, min(n, 4) + 1) if n % d == 0]
    if ways and p.rng.random() < 0.6:
        at = p.rng.choice(ways)
    else:
        at = sorted(p.rng.sample(range(1, n), min(n - 1, p.rng.randint(1, 2))))
    p.step("np.split", [x, at, axis], lambda a: jnp.split(a, at, axis))


def sliced(p):
    x = p.fit(ALL, fits=lambda v: v.ndim > 0)
    ranges, index = [], []
    for n in x.shape:
        if p.rng.random() < 0.4:
            ranges.append({})
            index.append(slice(None))
            continue
        start, stop = sorted([p.rng.randint(0, n), p.rng.randint(0, n)])
        if stop == start:
            start, stop = 0, n
        step = p.rng.choice([1, 1, 2, 3])
        if p.rng.random() < 0.2:
            start, stop, step = n - 1, -n - 1, -p.rng.randint(1, 2)
        elif p.rng.random() < 0.2 and start:
            start -= n
        ranges.append([start, stop] + ([step] if step != 1 else []))
        index.append(slice(start, stop, step))
    p.step("np.slice", [x, ranges], lambda a: a[tuple(index)])


def take(p):
    x = p.fit(ALL, fits=lambda v: v.ndim > 0)
    axis = p.rng.randrange(-x.ndim, x.ndim)
    n = x.shape[axis]
    if p.rng.random() < 0.2:
        i = p.rng.randrange(-n, n)
        p.step("np.take", [x, i, axis], lambda a: jnp.take(a, i, axis=axis, mode="wrap"))
    elif p.rng.random() < 0.4:
        shape = list(x.shape)
        shape[axis] = p.rng.randint(1, 6)
        i = p.helper(p.draw.integers(-n, n, size=shape).astype("int32"))
        p.step("np.take_along_axis", [x, i, axis], lambda a, i: jnp.take_along_axis(a, i, axis=axis))
    else:
        dtype = p.rng.choice(["int32"] if p.placed_in_jax else ["int32", "int8"])  # XLA ends on int8 where x is cut
        i = p.helper(p.draw.integers(-n, n, size=p.shape(p.rng.choice([0, 1, 1, 2]))).astype(dtype))
        p.step("np.take", [x, i, axis], lambda a, i: jnp.take(a, i, axis=axis, mode="wrap"))


def one_hot(p):
    i = p.helper(p.draw.integers(-1, 6, size=p.shape(1)).astype("int32"))
    dtype = p.rng.choice(["float32", "int8", "bfloat16"])
    p.step("np.one_hot", [i, 5, dtype], lambda a: jax.nn.one_hot(a, 5, dtype=dtype))


def update(p):
    x = p.fit(NUMERIC, fits=lambda v: v.ndim > 0)
    n = x.shape[0]
    if p.rng.random() < 0.5:
        rows = p.rng.sample(range(n), p.rng.randint(1, n)) if p.rng.random() < 0.7 else [p.rng.randrange(-n, n)]
        i = p.helper(np.array(rows, "int32"))  # each once: JAX does not say which of several is set
        v = p.helper(p.numbers(x.dtype, (i.size,) + x.shape[1:]))
        p.step("np.set_at", [x, i, v], lambda a, i, v: a.at[i].set(v))
    else:
        i = p.helper(p.draw.integers(-n, n, size=p.rng.randint(1, 9)).astype("int32"))
        v = p.helper(p.numbers(x.dtype, (i.size,) + x.shape[1:]))
        p.step("np.add_at", [x, i, v], lambda a, i, v: a.at[i].add(v), exact=not x.is_float,
               scale=lambda a, i, v: jnp.zeros_like(a).at[i].add(v) + a)


def dynamic(p):
    x = p.fit(ALL, fits=lambda v: v.ndim > 0)
    starts = [p.rng.randint(0, n) for n in x.shape]
    sizes = [p.rng.randint(1, n) for n in x.shape]
    if p.rng.random() < 0.5:
        p.step("np.dynamic_slice", [x, starts, sizes], lambda a: jax.lax.dynamic_slice(a, starts, sizes))
    else:
        y = p.helper(p.numbers(x.dtype, sizes))
        p.step("np.dynamic_update_slice", [x, y, starts], lambda a, b: jax.lax.dynamic_update_slice(a, b, starts))


def ordered(p):
    word = p.rng.choice(["sort", "argsort", "top_k"])
    x = p.fit(NUMERIC, exact=word != "sort", fits=lambda v: v.ndim > 0)
    if word == "top_k":
        k = p.rng.randint(1, x.shape[-1])
        p.step("np.top_k", [x, k], lambda a: jax.lax.top_k(a, k))
        return
    axis, down = p.rng.randrange(-x.ndim, x.ndim), p.rng.random() < 0.4
    p.step("np." + word, [x, axis, down], lambda a: getattr(jnp, word)(a, axis=axis, descending=down))


def cumsum(p):
    x = p.fit(ALL)
    axis = p.axis(x, lists=False)
    dtype = p.rng.choice(["float32", "int32"] if not x.is_float else ["float32"]) if p.rng.random() < 0.2 else None

    def f(a):
        return jnp.cumsum(a, axis=axis, dtype=dtype)
    p.step("np.cumsum", [x] + ([axis, dtype] if dtype else [] if axis is None else [axis]), f, exact=not x.is_float,
           scale=f if x.is_float else None)


def around(p):
    way = p.rng.choice(["tile", "pad", "tril", "triu"])
    x = p.fit(NUMERIC, fits=lambda v: v.ndim > (1 if way[0:3] == "tri" else 0))
    if way == "tile":
        repeats = [p.rng.randint(1, 3) for _ in range(x.ndim)]
        p.step("np.tile", [x, repeats], lambda a: jnp.tile(a, repeats))
    elif way == "pad":
        widths = [[p.rng.randint(0, 3), p.rng.randint(0, 4)] for _ in x.shape]
        fill = p.rng.choice([0, 1, 2])
        p.step("np.pad", [x, widths, "constant", fill], lambda a: jnp.pad(a, widths, constant_values=fill))
    else:
        k = p.rng.randint(-2, 2)
        p.step("np." + way, [x, k], lambda a: getattr(jnp, way)(a, k))


def norm(p):
    x = p.fit(FLOATS, fits=lambda v: v.ndim > 0)
    if p.rng.random() < 0.3:
        p.step("np.norm", [x], lambda a: jnp.linalg.norm(a.ravel()), exact=False)
        return
    axis, keep = p.rng.randrange(-x.ndim, x.ndim), p.rng.random() < 0.5
    if x.ndim > 1 and p.rng.random() < 0.3:
        axis = p.rng.sample(range(x.ndim), 2)
    named = tuple(axis) if isinstance(axis, list) else axis
    p.step("np.norm", [x, axis, keep], lambda a: jnp.linalg.norm(a, axis=named, keepdims=keep), exact=False)


def like(p):
    word = p.rng.choice(["zeros_like", "ones_like", "full_like", "copy"])
    x = p.fit(NUMERIC)
    more = [3] if word == "full_like" else []
    p.step("np." + word, [x] + more, lambda a: getattr(jnp, word)(a, *more), keeps=True)


def made(p):
    word = p.rng.choice(["zeros", "ones", "full", "arange", "eye", "linspace", "linspace"])
    dtype, shape = p.rng.choice(NUMERIC), p.shape()
    start, more = p.rng.choice([-3, 0, 2, -2.5, 0.1]), []
    if word in ("zeros", "ones", "full"):
        value = {"zeros": 0, "ones": 1, "full": p.rng.choice([3, 7] + ([0.1, -2.5] if dtype in FLOATS else []))}[word]
        if p.rng.random() < 0.6:
            more = [Placed(p.spec(shape))]
        p.step("np." + word, [shape] + ([value] if word == "full" else []) + [dtype] + more,
               lambda: jnp.full(shape, value, dtype))
        if more:
            lies(p, more[0].spec)
    elif word == "arange":
        way, n = p.rng.random(), p.rng.randint(1, 40)
        if way < 0.3:
            p.step("np.arange", [n], lambda: jnp.arange(n))
        elif way < 0.6:
            step = p.rng.choice([-3, -1, 1, 2, 5])
            p.step("np.arange", [3, 3 + n * step, step, "int32"], lambda: jnp.arange(3, 3 + n * step, step, "int32"))
        else:
            step = p.rng.choice([0.5, -0.25, 0.1, 1 / 3])
            p.step("np.arange", [start, start + (n - 0.5) * step, step],
                   lambda: jnp.arange(start, start + (n - 0.5) * step, step), exact=False)
    elif word == "eye":
        n, m, k = p.rng.randint(1, 9), p.rng.randint(1, 9), p.rng.randint(-3, 3)
        p.step("np.eye", [n, m, k, dtype], lambda: jnp.eye(n, m, k, dtype))
    else:
        stop, n, closed = p.rng.choice([1, 4, -6, 7.5, 100]), p.rng.randint(1, 30), p.rng.random() < 0.7
        dtype = p.rng.choice(["float32", "int32", "bfloat16", "int8"])
        places = np.linspace(start, stop, n, closed)[1:]
        near = np.abs(places - np.round(places)) < 1e-5 * (1 + abs(start) + abs(stop))
        if dtype not in FLOATS and near[:len(near) - closed].any():
            raise Unfit
        p.step("np.linspace", [start, stop, n, closed, dtype], lambda: jnp.linspace(start, stop, n, closed, dtype=dtype),
               exact=dtype not in FLOATS, scale=(lambda: jnp.float32(abs(start) + abs(stop))) if dtype in FLOATS else None)


def as_array(p):
    x = p.fit(ALL)
    if p.rng.random() < 0.4:
        p.step(p.rng.choice(["np.array", "np.asarray"]), [x], lambda a: a)
    else:
        dtype = p.rng.choice(list(FLOATS))
        p.step(p.rng.choice(["np.array", "np.asarray"]), [x, dtype], lambda a: a.astype(dtype))


def all_near(p):
    x = p.fit(NUMERIC, exact=True)
    y = p.fit([x.dtype], True, broadcast_with(x))
    more = p.rng.choice([[], [0.5], [1e-3, 2.0], [0.1, 0.1, True]])
    p.step("np.allclose", [x, y] + more, lambda a, b: jnp.allclose(a, b, *more))


def layer_norm(p):
    x = p.fit(["float32"], fits=lambda v: v.ndim > 0 and v.shape[-1] > 2)
    o = p.rng.choice([{}, {}, {"epsilon": 0.1}, {"axis": 0}, {"axis": list(range(x.ndim))}])
    named = tuple(o["axis"]) if isinstance(o.get("axis"), list) else o.get("axis", -1)
    epsilon = o.get("epsilon", 1e-5)
    if "axis" not in o and p.rng.random() < 0.6:
        o = o | {"bias": p.helper(p.numbers("float32", x.shape[-1:])), "scale": p.helper(p.numbers("float32", x.shape[-1:]))}

    def f(a, *more):
        even = jax.nn.standardize(a, axis=named, epsilon=epsilon)
        return even * more[1] + more[0] if more else even
    steep = float(jnp.max(jax.lax.rsqrt(jnp.var(x.x, axis=named) + epsilon)))
    p.step("np.layer_norm", [x] + ([o] if o else []), f, exact=False,
           scale=lambda a, *more: a.max() * steep * (more[1].max() if more else 1))


def cross_entropy(p):
    x = p.fit(FLOATS, fits=lambda v: v.ndim > 0)
    axis = p.rng.randrange(-x.ndim, x.ndim)
    shape = list(x.shape)
    n = shape.pop(axis)
    labels = p.helper(p.draw.integers(0, n, size=shape).astype(p.rng.choice(["int32", "uint8", "int8"])))

    def f(a, i):
        i = jnp.expand_dims(i.astype("int32"), axis)
        return -jnp.squeeze(jnp.take_along_axis(jax.nn.log_softmax(a, axis), i, axis), axis)
    p.step("np.softmax_cross_entropy_with_integer_labels", [x, labels] + ([] if axis == -1 else [axis]), f, exact=False,
           scale=lambda a, i: a)


def pair_of(x):
    return (x, x) if isinstance(x, int) else tuple(x)


def options(p, **ways):
    return {k: v for k, v in ((k, p.rng.choice(v)) for k, v in sorted(ways.items())) if v is not None}


def convolution(p):
    rng = p.rng
    batch, rows, columns = rng.choice([2, 4, 8]), rng.randint(3, 6), rng.randint(3, 6)
    c, out = rng.choice([1, 2, 4]), rng.choice([1, 2, 4])
    o = options(p, strides=[None, None, 2, [1, 2]], padding=[None, "SAME", "VALID", [[1, 0], [0, 2]]],
                dilation=[None, None, 2], layout=[None, None, "NCHW"])
    layout, kernel = o.get("layout", "NHWC"), [rng.randint(1, 3), rng.randint(1, 3)]
    x = p.helper(p.numbers("float32", [batch, rows, columns, c] if layout == "NHWC" else [batch, c, rows, columns]))
    w = p.helper(p.numbers("float32", kernel + [c, out] if layout == "NHWC" else [out, c] + kernel))
    padding = o.get("padding", "SAME")

    def f(a, b):
        return jax.lax.conv_general_dilated(
            a, b, pair_of(o.get("strides", 1)), padding if isinstance(padding, str) else [tuple(q) for q in padding],
            rhs_dilation=pair_of(o.get("dilation", 1)),
            dimension_numbers=(layout, "HWIO" if layout == "NHWC" else "OIHW", layout))
    p.step("np.conv", [x, w] + ([o] if o else []), f, exact=False, scale=f)


def pooling(p):
    o = options(p, strides=[None, 2, [2, 1]], padding=[None, "SAME", [[1, 0], [0, 1]]], layout=[None, None, "NCHW"])
    layout, window = o.get("layout", "NHWC"), [p.rng.randint(1, 3), p.rng.randint(1, 3)]
    sizes = [p.rng.choice([2, 4, 8]), p.rng.randint(3, 6), p.rng.randint(3, 6), p.rng.choice([1, 2])]
    x = p.helper(p.numbers("float32", sizes if layout == "NHWC" else [sizes[0], sizes[3], sizes[1], sizes[2]]))
    padding = o.get("padding", "VALID")

    def around(two, one):
        return (one, *two, one) if layout == "NHWC" else (one, one, *two)
    if not isinstance(padding, str):
        padding = around([tuple(q) for q in padding], (0, 0))
    p.step("np.max_pool", [x, window] + ([o] if o else []), lambda a: jax.lax.reduce_window(
        a, -np.inf, jax.lax.max, around(window, 1), around(pair_of(o.get("strides", 1)), 1), padding))


def attention(p):
    rng = p.rng
    batch, t, s = rng.choice([1, 2, 4]), rng.choice([2, 4, 8]), rng.choice([2, 4, 8])
    k, h = rng.choice([1, 2, 4]), rng.choice([2, 4])
    n = k * rng.choice([1, 1, 2])
    q = p.helper(p.numbers("float32", [batch, t, n, h]))
    key, value = p.helper(p.numbers("float32", [batch, s, k, h])), p.helper(p.numbers("float32", [batch, s, k, h]))
    o = options(p, is_causal=[None, True, False], scale=[None, 0.3])
    plain = dict(o)
    if rng.random() < 0.3:
        o["bias"] = p.helper(p.numbers("float32", [rng.choice([1, batch]), rng.choice([1, n]), t, s]))
    if rng.random() < 0.3:
        o["mask"] = p.helper(p.draw.random([rng.choice([1, batch]), 1, t, s]) < 0.7)
    named = sorted(set(o) - set(plain))
    steep = max(1.0, largest(q.x) * largest(key.x) * h + (largest(o["bias"].x) if "bias" in o else 0))
    p.step("np.attention", [q, key, value] + ([o] if o else []),
           lambda a, b, c, *more: jax.nn.dot_product_attention(a, b, c, **plain, **dict(zip(named, more))), exact=False,
           scale=lambda a, b, c, *more: c.max() * steep)


def random_word(p):
    key, shape = Key(p.rng), p.shape()
    k = key.key
    to = {"sharding": Placed(p.spec(shape))} if p.rng.random() < 0.7 else None
    word = p.rng.choice(["bits", "uniform", "normal", "bernoulli", "randint", "permutation", "choice", "choice", "categorical"])
    more = [to] if to else []
    if word in ("permutation", "choice", "categorical"):
        to = None
    if word == "bits":
        dtype = p.rng.choice(["uint32", "uint16", "uint8"])
        p.step("random.bits", [key, shape, {"dtype": dtype} | (to or {})], lambda: jax.random.bits(k, shape, dtype))
    elif word == "uniform":
        p.step("random.uniform", [key, shape, {"minval": -2, "maxval": 3} | (to or {})],
               lambda: jax.random.uniform(k, shape, minval=-2, maxval=3))
    elif word == "normal":
        p.step("random.normal", [key, shape] + more, lambda: jax.random.normal(k, shape), exact=False)
    elif word == "bernoulli":
        p.step("random.bernoulli", [key, 0.3, shape] + more, lambda: jax.random.bernoulli(k, 0.3, shape))
    elif word == "randint":
        low = p.rng.randint(-50, 50)
        p.step("random.randint", [key, shape, low, low + 37] + more, lambda: jax.random.randint(k, shape, low, low + 37))
    elif word == "permutation":
        n = p.rng.randint(1, 40)
        p.step("random.permutation", [key, n], lambda: jax.random.permutation(k, n))
    elif word == "choice":
        if p.rng.random() < 0.4:
            n = p.rng.randint(1, 50)
            p.step("random.choice", [key, n, shape], lambda: jax.random.choice(k, n, tuple(shape)))
            return
        x = p.fit(ALL, fits=lambda v: v.ndim > 0)
        o = {"axis": p.rng.randrange(x.ndim), "replace": p.rng.random() < 0.5}
        count = p.rng.randint(1, x.shape[o["axis"]])
        p.step("random.choice", [key, x, [count], o], lambda a: jax.random.choice(k, a, (count,), **o))
    else:
        x = p.fit(["float32"], True, lambda v: v.ndim > 0)
        axis = p.rng.randrange(-x.ndim, x.ndim)
        p.step("random.categorical", [key, x, {"axis": axis}], lambda a: jax.random.categorical(k, a, axis=axis))
    if to:
        lies(p, to["sharding"].spec)


def lies(p, spec):
    """The last value lies as its word was told."""
    value = p.values[-1]
    value.x, value.shaken = p.place(value.x, spec), p.place(value.shaken, spec)
    value.placed = value.known = True
    if p.placed_in_jax:
        p.lines[-1]["index"] = p.index(value.x)


def constrained(p):
    x = p.fit(ALL, fits=lambda v: v.placed)
    spec = p.spec(x.shape)
    word = p.rng.choice(["with_sharding_constraint", "device_put", "reshard"])
    p.step("shardrt." + word, [x, Placed(spec)], lambda a: a)
    lies(p, spec)


def stopped(p):
    p.step("shardrt.stop_gradient", [p.fit(FLOATS)], jax.lax.stop_gradient)


STEPS = [unary_exact, unary, unary, binary, binary, binary, binary_stepped, compare, logical, where, clip, astype, astype,
         reduce, reduce, arg_reduce, softmax, product, product, product_made, einsum, reshape, transpose, sizes_of_one,
         broadcast_to, joined, joined, split, sliced, sliced, take, one_hot, update, dynamic, ordered, cumsum, around,
         norm, like, random_word, random_word, constrained, constrained, made, made, as_array, all_near, layer_norm,
         cross_entropy, convolution, pooling, attention, stopped]


def program(seed, small, mesh_of):
    p = Program(seed, small, mesh_of)
    dtype = p.rng.choice(["float32", None, None])
    for _ in range(p.rng.randint(2, 3)):
        p.input(dtype)
    wanted = p.rng.randint(3, 5 if small else 12)
    for _ in range(wanted * 6):
        if len(p.steps) >= (min(wanted, 3) if p.special else wanted):
            break
        count = len(p.values), len(p.lines)
        try:
            p.rng.choice(STEPS)(p)
        except (Unfit, TypeError, ValueError, OverflowError):  # JAX, too, refuses some
            del p.values[count[0]:], p.lines[count[1]:]
    if p.rng.random() < 0.75:
        p.gradient()
    return p.line()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--small", action="store_true", help="short programs of small arrays, for the tree")
    given = parser.parse_args()
    meshes = {}

    def mesh_of(sizes, names):
        if (sizes, names) not in meshes:
            meshes[sizes, names] = Mesh(np.array(jax.devices()).reshape(sizes), names)
        return meshes[sizes, names]
    for i in range(given.programs):
        print(json.dumps(program(given.seed * 1000000 + i, given.small, mesh_of), separators=(",", ":")), flush=True)
        if i % 100 == 99:
            jax.clear_caches()
            print(f"{i + 1} programs", file=sys.stderr)


main()
