"""Appends what a program is given of a recipe's batches to a file, in lines as stream.c prints them.

    stream.py file devices recipe.lua loader
"""

import ctypes
import os
import sys

import shardrt

fingerprint = ctypes.CDLL(os.environ["SHARDRT_LIBRARY"]).shardrt_fingerprint
fingerprint.restype, fingerprint.argtypes = ctypes.c_uint64, (ctypes.c_void_p, ctypes.c_size_t)

path, devices, recipe, loader = sys.argv[1:]
lines = open(path, "a", buffering=1)  # each whole, unlike those that mpirun collects
with shardrt.open(recipe, devices=int(devices), timeout=60) as data:
    for step, batch in enumerate(data[loader]):
        for name, array in batch.items():
            for shard in array.shards:
                count = array.dtype.itemsize
                for size in shard.shape:
                    count *= size
                address = shard.__array_interface__["data"][0]
                lines.write(f"{step} {name} {shard.device} {fingerprint(address, count):016x}\n")
