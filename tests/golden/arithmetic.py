"""What JAX answers where numbers, dtypes and edges meet: writes arithmetic.json, which tests/ops/arithmetic_spec.lua reads.

Made with JAX 0.10.2 on a CPU:  JAX_PLATFORMS=cpu python3 arithmetic.py > arithmetic.json
A line is a case: a word, its arguments, and what it gives; with "grad", the gradients of the sum of what it gives.
An array is [dtype, shape, its bytes in hex]. Cases with a dtype of 64 bits are made with x64, the others without.
Left out is what docs/compute.md says is not JAX's.
"""
import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np

INF, NAN = float("inf"), float("nan")
WHOLE = "uint8 uint16 uint32 uint64 int8 int16 int32 int64".split()
FLOAT = "bfloat16 float16 float32 float64".split()
ALL = ["bool"] + WHOLE + FLOAT
SMALL = [t for t in ALL if "64" not in t]
BINARY = ("add subtract multiply divide remainder floor_divide power arctan2 maximum minimum equal not_equal less "
          "less_equal greater greater_equal logical_and logical_or").split()
COMPARING = BINARY[10:16]
UNARY = ("sin cos tan tanh exp expm1 log log1p sqrt square reciprocal abs sign floor ceil round negative logical_not "
         "isnan isfinite").split()
FOLDS = "sum prod mean var std max min any all argmax argmin".split()
WORDS = {name: getattr(jnp, name) for name in BINARY + UNARY + FOLDS + ["where", "clip", "dot", "stack"]}
WORDS |= {"softmax": jax.nn.softmax, "log_softmax": jax.nn.log_softmax, "rsqrt": jax.lax.rsqrt,
          "sigmoid": jax.nn.sigmoid, "erf": jax.scipy.special.erf, "astype": lambda x, t: x.astype(t)}


def edges(dtype):
    if dtype == "bool":
        return np.array([False, True])
    if dtype in WHOLE:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        return np.array([0, 1, 2, 3, 100, high, high // 2] + ([-1, -2, -3, low] if low < 0 else []), dtype)
    info = jnp.finfo(dtype)
    return np.array([0.0, -0.0, 1, -1, 0.1, 0.5, -0.5, 1.5, 2.5, -7, 100.25, float(info.max), INF, -INF, NAN],
                    jnp.dtype(dtype))


def shown(x):
    if isinstance(x, (bool, str, list, type(None))):
        return [shown(v) for v in x] if isinstance(x, list) else x
    if isinstance(x, (int, float)):
        return {"number": "%.17g" % x}
    x = np.asarray(x)
    return [str(x.dtype), list(x.shape), x.tobytes().hex()]


def case(word, *args, grad=None):
    wide = any("64" in str(getattr(x, "dtype", x)) for x in args)
    with jax.enable_x64(wide):
        given = [jnp.asarray(x) if isinstance(x, np.ndarray) else x for x in args]
        if grad is None:
            found = [WORDS[word](*given)]
        else:
            def summed(*some):
                every = list(given)
                for i, x in zip(grad, some):
                    every[i] = x
                return jnp.sum(WORDS[word](*every).astype("float32"))
            found = jax.grad(summed, argnums=tuple(range(len(grad))))(*[given[i] for i in grad])
        made = {"word": word, "args": [shown(x) for x in args], "gives": [shown(x) for x in found]}
    made |= {} if grad is None else {"grad": [i + 1 for i in grad]}
    print(json.dumps(made, separators=(",", ":")))


def is_float(t):
    return t in FLOAT


def signed(t):
    return t.startswith("int")


# Which dtype two dtypes give.
for a, b in itertools.product(ALL, ALL):
    case("multiply", np.ones(1, jnp.dtype(a)), np.ones(1, jnp.dtype(b)))

# A number beside an array, on either side.
for word, t in itertools.product(BINARY, ["bfloat16", "float16", "float32"]):
    for number in [0.1, 1e6, 257, INF]:
        case(word, edges(t), number)
        if word != "power":
            case(word, number, edges(t))
for word, t in itertools.product(["add", "maximum", "less", "divide", "floor_divide", "power"], SMALL[:7]):
    for number in [0.3, 3, True] + ([0] if word == "floor_divide" else []):
        case(word, edges(t), number)
for t in ["bfloat16", "float16"]:
    for number in [0.1, 1e6]:
        case("where", np.array([True, False] * 7 + [True]), edges(t), number)
        case("clip", edges(t), -0.3, number)
        case("stack", [edges(t)[4], number])

# Operands of different dtypes.
for a, b in itertools.permutations(SMALL[1:], 2):
    x, y = edges(a)[:, None], edges(b)
    for word in ["add", "floor_divide", "remainder", "less", "divide"]:
        mixed = "uint32" in (a, b) and (signed(a) or signed(b))
        if word == "less" and mixed or not (word == "add" or is_float(a) != is_float(b)):
            continue
        if a != "float32" and b != "float32":
            case(word, x, y)
for t in WHOLE:
    for word in ["floor_divide", "remainder", "add", "multiply", "subtract", "maximum"]:
        case(word, edges(t)[:, None], edges(t))
    case("power", edges(t)[:, None], np.array([0, 1, 2, 3, 7], t))
    case("dot", edges(t), edges(t))
case("dot", np.array([[True, False], [False, False]]), np.array([[True, True], [True, False]]))

# One operand, casts.
for word, t in itertools.product(UNARY, SMALL):
    if not (t == "bool" and word in ["negative", "sign", "round"]):
        case(word, edges(t))
for word, t in itertools.product(["rsqrt", "sigmoid", "erf"], FLOAT[:3]):
    case(word, edges(t))
for a, b in itertools.permutations(ALL, 2):
    case("astype", edges(a), b)

# Whole axes: dtypes, no elements, equals, what is no number.
for word, t in itertools.product(FOLDS, SMALL):
    case(word, edges(t)[:4])
for word in FOLDS + ["softmax", "log_softmax"]:
    if word not in ["max", "min", "argmax", "argmin"]:
        case(word, np.zeros([2, 0], "float32"), 1)
    case(word, np.zeros([2, 0], "float32"), 0)
ROWS = [[INF, 1], [-INF, 1], [-INF, -INF], [NAN, 1], [INF, INF], [2, 2], [-0.0, 0.0], [0, 0], [3, 4]]
for word, row in itertools.product(FOLDS + ["softmax", "log_softmax"], ROWS):
    case(word, np.array(row, "float32"))
    if word in ["sum", "mean", "var", "std", "max", "min", "softmax", "log_softmax", "prod"]:
        if word != "prod" or INF not in map(abs, row) and row[0] == row[0]:
            case(word, np.array(row, "float32"), grad=[0])

# Gradients where there is a kink, or an end.
ENDS = np.array([0.0, -0.0, 1, -1, 2.5, -3, INF, -INF, NAN], "float32")
for word in ("sin cos tan tanh exp expm1 log log1p sqrt square reciprocal abs sign floor rsqrt sigmoid erf").split():
    case(word, ENDS, grad=[0])
for word in ["maximum", "minimum", "multiply", "divide", "arctan2", "floor_divide", "add", "power", "remainder"]:
    x, y = (v.ravel() for v in np.meshgrid(ENDS, ENDS, indexing="ij"))
    if word == "power":  # of 0 and NaN to an array of 0: docs/compute.md
        x, y = x[y != 0], y[y != 0]
    if word == "remainder":  # where that is no number
        fine = np.isfinite(x) & (y == y) & (y != 0)
        x, y = x[fine], y[fine]
    case(word, x, y, grad=[0, 1])
for number in [0, 1, 2, 3, -1, 0.5, 1.5]:
    case("power", ENDS, number, grad=[0])
case("maximum", ENDS, 0, grad=[0])
case("clip", ENDS, -1, 1, grad=[0])
case("where", ENDS > 0, ENDS, 0.5, grad=[1])
for row in [[0, 2, 3], [0, 0, 3], [1e-20, 1e-20, 1e-5], [1e30, 1e30, 1e-30]]:
    case("prod", np.array(row, "float32"), grad=[0])
