"""The same computations under JAX, for `make bench` with JAX_PYTHON=...: compute_jax.py WHAT LAYOUT ROUNDS prints what
compute_once.lua prints. With several processes: also index, count, address."""
import os
import sys
import time

what, layout, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
several = len(sys.argv) > 4
devices = 2 if several else 8
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
os.environ["JAX_PLATFORMS"] = "cpu"
import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh  # noqa: E402

import work_jax  # noqa: E402

if several:
    from jax.experimental import multihost_utils
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(sys.argv[6], int(sys.argv[5]), int(sys.argv[4]))


def bytes_of(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name + ":"))


used = jax.devices()[:1] if layout == "one" else jax.devices()
shape = (1, 1) if layout == "one" else (8, 1) if layout == "data" else (4, 2)
mesh = Mesh(np.array(used).reshape(shape), ("a", "b"))
bare = bytes_of("VmRSS")


def slowest_and_sum(value):
    if not several:
        return value, value
    # Two float32, as there is no float64 here: bytes in whole pages.
    every = multihost_utils.process_allgather(np.float32(value))
    return float(every.max()), float(every.sum())




def steps_of(step, count):
    """Over several devices each is waited for: those that XLA has begun wait for one another, and it ends the process."""
    def run():
        for _ in range(count - 1):
            made = step()
            if layout != "one":
                jax.block_until_ready(made)
        return step()
    return run


run = {
    "sin": lambda: work_jax.sine(mesh, 8192), "dot": lambda: work_jax.product(mesh, 4096),
    "step": lambda: work_jax.training(mesh, 2048, layout == "tensor"),
    "small_jit": lambda: steps_of(work_jax.training(mesh, 64, False), 100 if layout == "one" else 10),
}[what]()
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
