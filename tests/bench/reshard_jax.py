"""The same reshards under JAX, for `make bench` with JAX_PYTHON=...: prints the seconds of the slowest process, the
best of several rounds. Alone: size, rounds, from, to. With several processes: also index, count, address.

device_put moves inside one process; between processes it is jax.jit with out_shardings, over gloo."""
import os
import sys
import time

size, rounds, source, target = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
several = len(sys.argv) > 5
devices = 2 if several else 8
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
os.environ["JAX_PLATFORMS"] = "cpu"
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

if several:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(sys.argv[7], int(sys.argv[6]), int(sys.argv[5]))


def spec(text):
    """ "x,y" -> P("x", "y"); "xy," -> P(("x", "y"), None); "" -> P()"""
    return PartitionSpec(*[tuple(entry) or None for entry in text.split(",")] if text else [])


grid = np.array(jax.devices()).reshape((-1,) if several else (4, 2))
mesh = Mesh(grid, ("x",) if several else ("x", "y"))
here, there = NamedSharding(mesh, spec(source)), NamedSharding(mesh, spec(target))
x = jax.jit(lambda: jnp.ones((size, size), jnp.float32), out_shardings=here)().block_until_ready()
move = jax.jit(lambda v: v, out_shardings=there) if several else lambda v: jax.device_put(v, there)
best = float("inf")
for _ in range(rounds):
    if several:
        from jax.experimental import multihost_utils
        multihost_utils.sync_global_devices("round")
    start = time.perf_counter()
    y = move(x).block_until_ready()
    mine = time.perf_counter() - start
    if several:
        mine = float(multihost_utils.process_allgather(np.float32(mine)).max())
    best = min(best, mine)
    del y
if not several or jax.process_index() == 0:
    print(f"{best:.9f}")
