"""Softmax regression with JAX, whose processes each have the rows of their own devices.

    python3 train_jax.py data.lua 127.0.0.1:1234 2 0 & python3 train_jax.py data.lua 127.0.0.1:1234 2 1

The words behind the recipe: where the first process listens, how many there are, and which this one is. On a cluster
that JAX knows (Slurm, Open MPI, Cloud TPUs) jax.distributed.initialize() finds all of them by itself.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import shardrt
import shardrt.jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

recipe, coordinator, count, index = sys.argv[1:]
jax.distributed.initialize(coordinator, int(count), int(index))
mesh = Mesh(jax.devices(), ("data",))
rows, everywhere = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())


def loss_of(parameters, image, label):
    scores = image.reshape(len(image), -1) @ parameters["weights"] + parameters["bias"]
    return -jnp.mean(jax.nn.log_softmax(scores)[jnp.arange(len(label)), label])


@jax.jit
def step(parameters, image, label):
    loss, slopes = jax.value_and_grad(loss_of)(parameters, image, label)
    return loss, jax.tree.map(lambda value, slope: value - 0.1 * slope, parameters, slopes)


zeros = {"weights": np.zeros((28 * 28, 10), "float32"), "bias": np.zeros(10, "float32")}
parameters = jax.device_put(zeros, everywhere)
losses = []
with shardrt.open(recipe, devices=jax.local_device_count(), transport=shardrt.jax.transport()) as data:
    for batch in data:
        image, label = (shardrt.jax.global_array(batch[name], rows) for name in ("image", "label"))
        loss, parameters = step(parameters, image, label)
        losses.append(float(loss))

if jax.process_index() == 0:
    print(f"mean loss of the last 20 of {len(losses)} steps: {np.mean(losses[-20:]):.4f}", flush=True)
jax.distributed.shutdown()
