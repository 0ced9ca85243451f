"""Prints what a program is given of a recipe's batches, as stream.c does: stream.py devices recipe.lua loader…"""

import ctypes
import os
import sys

import shardrt

fingerprint = ctypes.CDLL(os.environ["SHARDRT_LIBRARY"]).shardrt_fingerprint
fingerprint.restype, fingerprint.argtypes = ctypes.c_uint64, (ctypes.c_void_p, ctypes.c_size_t)

sys.stdout.reconfigure(line_buffering=True)  # print would write the end of a line by itself
devices, recipe, *loaders = sys.argv[1:]
with shardrt.open(recipe, devices=int(devices), timeout=60) as data:
    for loader in loaders:
        prefix = f"{loader} " if len(loaders) > 1 else ""
        for step, batch in enumerate(data[loader]):
            for name, array in batch.items():
                for shard in array.shards:
                    count = array.dtype.itemsize
                    for size in shard.shape:
                        count *= size
                    address = shard.__array_interface__["data"][0]
                    sys.stdout.write(f"{prefix}{step} {name} {shard.device} {fingerprint(address, count):016x}\n")
