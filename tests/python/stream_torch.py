"""Prints what a program with PyTorch is given of a recipe's loaders, as stream.py does, over MPI or torch.distributed:
stream_torch.py devices recipe.lua mpi|callbacks loader…"""

import ctypes
import os
import sys

import shardrt
import shardrt.torch
from torch import distributed as dist

fingerprint = ctypes.CDLL(os.environ["SHARDRT_LIBRARY"]).shardrt_fingerprint
fingerprint.restype, fingerprint.argtypes = ctypes.c_uint64, (ctypes.c_void_p, ctypes.c_size_t)

sys.stdout.reconfigure(line_buffering=True)
devices, recipe, how, *loaders = sys.argv[1:]
if how == "callbacks":
    dist.init_process_group("gloo")
transport = shardrt.torch.transport() if how == "callbacks" else None
with shardrt.open(recipe, devices=int(devices), timeout=60, transport=transport) as data:
    for loader in loaders:
        for step, batch in enumerate(data[loader]):
            for name, array in batch.items():
                for shard in array.shards:
                    tensor = shardrt.torch.tensor(shard)
                    count = tensor.numel() * tensor.element_size()
                    hashed = fingerprint(tensor.data_ptr(), count)
                    sys.stdout.write(f"{loader} {step} {name} {shard.device} {hashed:016x}\n")
