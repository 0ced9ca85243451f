"""The same computations under JAX, for `make bench` with JAX_PYTHON=...: compute_jax.py WHAT LAYOUT ROUNDS prints what
compute_once.lua prints. With several processes: also index, count, address.

Each is one compiled function; the gradient step's is all of the step, and gives its parameters' memory up."""
import os
import sys
import time

what, layout, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
several = len(sys.argv) > 4
devices = 2 if several else 8
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
os.environ["JAX_PLATFORMS"] = "cpu"
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P  # noqa: E402

if several:
    from jax.experimental import multihost_utils
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(sys.argv[6], int(sys.argv[5]), int(sys.argv[4]))

LAYERS, BATCH = [784, 2048, 2048, 2048, 10], 2048


def bytes_of(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name + ":"))


used = jax.devices()[:1] if layout == "one" else jax.devices()
shape = (1, 1) if layout == "one" else (8, 1) if what == "step" and layout != "tensor" else (4, 2)
mesh = Mesh(np.array(used).reshape(shape), ("a", "b"))
bare = bytes_of("VmRSS")


def on(*entries):
    return NamedSharding(mesh, P(*entries))


def normal(key, size, sharding, scale=1.0):
    make = jax.jit(lambda: jax.random.normal(jax.random.key(key), size) * scale, out_shardings=sharding)
    return make().block_until_ready()


def elementwise():
    x, run = normal(0, (8192, 8192), on("a", "b")), jax.jit(jnp.sin)
    return lambda: run(x)


def dot():
    a, b = normal(0, (4096, 4096), on("a", None)), normal(1, (4096, 4096), on(None, "b"))
    run = jax.jit(jnp.dot)
    return lambda: run(a, b)


def step():
    to = {"W2": on(None, "b"), "b2": on("b"), "W3": on("b", None)} if layout == "tensor" else {}
    state = {}
    for k, (n_in, n_out) in enumerate(zip(LAYERS, LAYERS[1:]), 1):
        state[f"W{k}"] = normal(k, (n_in, n_out), to.get(f"W{k}", on()), n_in ** -0.5)
        state[f"b{k}"] = normal(10 + k, (n_out,), to.get(f"b{k}", on()))
    inputs = normal(20, (BATCH, LAYERS[0]), on("a", None))
    targets = normal(21, (BATCH, LAYERS[-1]), on("a", None))

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


def slowest_and_sum(value):
    if not several:
        return value, value
    # Two float32, as there is no float64 here: bytes in whole pages.
    every = multihost_utils.process_allgather(np.float32(value))
    return float(every.max()), float(every.sum())


run = {"sin": elementwise, "dot": dot, "step": step}[what]()
best, busy = float("inf"), 0.0
for number in range(rounds + 1):  # the first does not count: it compiles
    if number == 1:
        busy = time.process_time()
    if several:
        multihost_utils.sync_global_devices("round")
    start = time.perf_counter()
    made = jax.block_until_ready(run())
    slowest, _ = slowest_and_sum(time.perf_counter() - start)
    del made
    if number > 0:
        best = min(best, slowest)
_, computed = slowest_and_sum((time.process_time() - busy) / rounds)
_, taken = slowest_and_sum(bytes_of("VmHWM") - bare)
if not several or jax.process_index() == 0:
    print(f"{best:.9f} {computed:.6f} {taken:.0f}")
