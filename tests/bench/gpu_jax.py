"""The same under JAX, for `make bench PARTS=gpu` with JAX_PYTHON=...: gpu_jax.py ROUNDS SIN DOT WIDTH WHAT PRECISION
STEPS ... prints a line for each three of the last what gpu_once.lua prints. JAX's name for its default precision of
float32, which on these GPUs is TF32, is none; "highest" is float32. With "where" as its only argument it prints where
JAX would compute."""
import statistics
import sys
import time

import jax
import numpy as np
from jax.sharding import Mesh

import work_jax

if sys.argv[1:] == ["where"]:
    print(jax.default_backend())
    sys.exit()

rounds, sin, dot, width = map(int, sys.argv[1:5])
cases = sys.argv[5:]
mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("a", "b"))
works = {
    "sin": lambda: work_jax.sine(mesh, sin), "dot": lambda: work_jax.product(mesh, dot),
    "data": lambda: work_jax.training(mesh, width, False), "tensor": lambda: work_jax.training(mesh, width, True),
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
