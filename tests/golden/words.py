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
