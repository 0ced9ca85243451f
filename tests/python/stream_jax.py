"""Prints what a program with JAX is given of a recipe's loaders, as stream.py does, over MPI or jax.distributed:
stream_jax.py devices recipe.lua mpi|callbacks loader…"""

import ctypes
import os
import sys

devices, recipe, how, *loaders = sys.argv[1:]
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"

import jax
import numpy as np
import shardrt
import shardrt.jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

fingerprint = ctypes.CDLL(os.environ["SHARDRT_LIBRARY"]).shardrt_fingerprint
fingerprint.restype, fingerprint.argtypes = ctypes.c_uint64, (ctypes.c_void_p, ctypes.c_size_t)

sys.stdout.reconfigure(line_buffering=True)
count = os.environ.get("OMPI_COMM_WORLD_SIZE" if how == "mpi" else "WORLD_SIZE")
if count is not None:
    rank = os.environ["OMPI_COMM_WORLD_RANK" if how == "mpi" else "RANK"]
    jax.distributed.initialize(f"127.0.0.1:{os.environ['MASTER_PORT']}", int(count), int(rank))
mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
numbers = {device: i for i, device in enumerate(jax.devices())}
cut = {"x": P("data", "model")}
transport = shardrt.jax.transport() if how == "callbacks" else None
with shardrt.open(recipe, devices=int(devices), timeout=60, transport=transport) as data:
    for loader in loaders:
        for step, batch in enumerate(data[loader]):
            for name, array in batch.items():
                value = shardrt.jax.global_array(array, NamedSharding(mesh, cut.get(name, P("data"))))
                for shard in value.addressable_shards:
                    address, size = shard.data.unsafe_buffer_pointer(), shard.data.nbytes
                    hashed = fingerprint(address, size)
                    sys.stdout.write(f"{loader} {step} {name} {numbers[shard.device]} {hashed:016x}\n")
if count is not None:
    jax.distributed.shutdown()
