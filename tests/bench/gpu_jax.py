"""The same under JAX, for `make bench PARTS=gpu` with JAX_PYTHON=...: gpu_jax.py ROUNDS SIN DOT WIDTH WHAT PRECISION
STEPS ... prints a line for each three of the last what gpu_once.lua prints. JAX's name for its default precision of
float32, which on these GPUs is TF32, is none; "highest" is float32.

Each is one compiled function; the gradient step's is all of the step, and gives its parameters' memory up. With
"where" as its only argument it prints where JAX would compute."""
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

if sys.argv[1:] == ["where"]:
    print(jax.default_backend())
    sys.exit()

rounds, sin, dot, width = map(int, sys.argv[1:5])
cases = sys.argv[5:]
LAYERS = [784, width, width, width, 10]
mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("a", "b"))


def on(*entries):
    return NamedSharding(mesh, P(*entries))


def normal(key, size, sharding, scale=1.0):
    make = jax.jit(lambda: jax.random.normal(jax.random.key(key), size) * scale, out_shardings=sharding)
    return make().block_until_ready()


def elementwise():
    x, run = normal(0, (sin, sin), on("a", "b")), jax.jit(jnp.sin)
    return lambda: run(x)


def product():
    a, b = normal(0, (dot, dot), on("a", None)), normal(1, (dot, dot), on(None, "b"))
    run = jax.jit(jnp.dot)
    return lambda: run(a, b)


def training(to):
    state = {}
    for k, (n_in, n_out) in enumerate(zip(LAYERS, LAYERS[1:]), 1):
        state[f"W{k}"] = normal(k, (n_in, n_out), to.get(f"W{k}", on()), n_in ** -0.5)
        state[f"b{k}"] = normal(10 + k, (n_out,), to.get(f"b{k}", on()))
    inputs = normal(20, (width, LAYERS[0]), on("a", None))
    targets = normal(21, (width, LAYERS[-1]), on("a", None))

    def loss(params, inputs, targets):
        x = inputs
        for k in range(1, len(LAYERS)):
            x = jnp.dot(x, params[f"W{k}"]) + params[f"b{k}"]
            if k < len(LAYERS) - 1:
                x = jnp.maximum(x, 0)
        return jnp.mean(jnp.sum((x - targets) ** 2, 1))

    def train(params, inputs, targets):
        value, grads = jax.value_and_grad(loss)(params, inputs, targets)
        return value, jax.tree.map(lambda p, g: p - 1e-5 * g, params, grads)

    run = jax.jit(train, donate_argnums=0)

    def one():
        nonlocal state
        value, state = run(state, inputs, targets)
        return value, state

    return one


works = {
    "sin": elementwise, "dot": product, "data": lambda: training({}),
    "tensor": lambda: training({"W2": on(None, "b"), "b2": on("b"), "W3": on("b", None)}),
}


def seconds(what, steps):
    run, times = works[what](), []
    for number in range(rounds + 1):  # the first does not count: it compiles
        start = time.perf_counter()
        for _ in range(steps):
            made = run()
        jax.block_until_ready(made)
        if number > 0:
            times.append((time.perf_counter() - start) / steps)
    return statistics.median(times)


for what, precision, steps in zip(cases[::3], cases[1::3], cases[2::3]):
    with jax.default_matmul_precision("highest" if precision == "float32" else None):
        print(f"{seconds(what, int(steps)):.9f}", flush=True)
