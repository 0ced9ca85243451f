"""JAX's side of words_once.lua, with as many devices as said: words_jax.py DTYPE DEVICES. Each call is one compiled
function of the operands that it names; one without operands is called as it stands."""
import os
import sys
import time

dtype, devices = sys.argv[1], int(sys.argv[2])
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
os.environ["JAX_PLATFORMS"] = "cpu"
import jax  # noqa: E402
import jax.numpy as np  # noqa: E402
import numpy  # noqa: E402
import optax  # noqa: E402
from jax import lax, nn, random  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P  # noqa: E402

mesh = Mesh(numpy.array(jax.devices()).reshape((4, 2) if devices == 8 else (1, 1)), ("a", "b"))
rows, everywhere = NamedSharding(mesh, P(("a", "b"))), NamedSharding(mesh, P())
count = 0


def normal(shape, to):
    global count
    count += 1
    return jax.device_put(random.normal(random.key(count), shape).astype(dtype), to)


def whole(shape):
    return jax.device_put(random.randint(random.key(99), shape, 0, 1024), rows)


def params_of(first):
    return {name: normal(shape, everywhere) for name, shape in {
        "W1": (first, 1024), "b1": (1024,), "W2": (1024, 256), "b2": (256,), "W3": (256, 16), "b3": (16,)}.items()}


x = normal((1024, 1024), rows)
turned = NamedSharding(mesh, P("b", "a"))
operands = {
    "x": x, "i": whole((1024, 1024)), "y": normal((1024, 1024), rows), "p": np.abs(x) + np.asarray(0.01, dtype),
    "m": x > 0, "f16": x.astype("float16"), "k": whole((1024,)), "w": normal((1024, 1024), everywhere),
    "x2": normal((2048, 2048), rows), "w2": normal((2048, 2048), everywhere), "v": normal((1024,), everywhere),
    "b": normal((16, 256, 256), rows), "small": normal((512, 512), everywhere), "q": normal((8, 256, 8, 32), rows),
    "image": normal((8, 32, 32, 32), rows), "kernel": normal((3, 3, 32, 64), everywhere),
    "cut": jax.device_put(x, NamedSharding(mesh, P("a", "b"))), "key": random.key(1),
    "grads": params_of(1024),
}
host = numpy.array(x)
params, narrow = params_of(1024), params_of(64)
batch_x, batch_y = normal((128, 64), rows), normal((128, 16), rows)
clipper = optax.clip_by_global_norm(1.0)


def move():
    return jax.device_put(operands["cut"], turned)


def close():
    return bool(np.allclose(operands["x"], operands["y"]))


def clip(grads):
    return clipper.update(grads, clipper.init(grads))[0]


def loss(at, inputs, targets):
    h = nn.relu(inputs @ at["W1"] + at["b1"])
    h = nn.relu(h @ at["W2"] + at["b2"])
    return np.mean((h @ at["W3"] + at["b3"] - targets) ** 2)


@jax.jit
def train(at, inputs, targets):
    value, gradients = jax.value_and_grad(loss)(at, inputs, targets)
    return value, jax.tree.map(lambda p, g: p - 1e-3 * g, at, gradients)


def step():
    return train(narrow, batch_x, batch_y)


makers = {"sgd": lambda: optax.sgd(1e-3), "momentum": lambda: optax.sgd(1e-3, 0.9),
          "adam": lambda: optax.adam(1e-3), "adamw": lambda: optax.adamw(1e-3)}
updates = {}


def update(name):
    if name not in updates:
        optimizer = makers[name]()

        @jax.jit
        def once(at, grads, state):
            changes, state = optimizer.update(grads, state, at)
            return optax.apply_updates(at, changes), state

        updates[name] = once, jax.device_put(optimizer.init(params), everywhere)
    once, state = updates[name]
    return once(params, operands["grads"], state)


def call_of(text):
    names = [name for name in compile(text, "call", "eval").co_names if name in operands]
    call = eval(f"lambda {', '.join(names)}: {text}", globals())
    if not names:
        return call
    compiled = jax.jit(call)
    return lambda: compiled(*[operands[name] for name in names])


def timed(call, seconds):
    rounds, start, processor = 0, time.perf_counter(), time.process_time()
    while rounds == 0 or time.perf_counter() - start < seconds:
        jax.block_until_ready(call())
        rounds += 1
    return (time.perf_counter() - start) / rounds, (time.process_time() - processor) / rounds


made = {}
for line in sys.stdin:
    name, text = line.rstrip("\n").split("\t")
    if name not in made:
        made[name] = call_of(text)
        jax.block_until_ready(made[name]())
        timed(made[name], 0.1)
    print("%.9f %.9f" % timed(made[name], 0.02), flush=True)
