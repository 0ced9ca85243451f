#!/usr/bin/env python3
"""Writes the small Zarr, HDF5 and safetensors files in tests/files/arrays, with the formats' own software:

    python3 -m venv env && env/bin/pip install numpy 'zarr>=3' h5py safetensors
    env/bin/python tests/files/arrays.py

What is read from them is compared with the .npy file of the same dtype.
"""
import json
import os
import shutil
import tarfile
import tempfile

import h5py
import numpy as np
import zarr
from safetensors.numpy import save_file
from zarr.codecs import (BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, ZstdCodec)
import numcodecs

target = os.path.join(os.path.dirname(os.path.abspath(__file__)), "arrays.tar.gz")
here = tempfile.mkdtemp()



rng = np.random.default_rng(7)
SHAPE, CHUNK = (11, 6, 5), (4, 4, 3)  # chunks that fit in no dimension
DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
          "float64"]


def values(dtype):
    """Numbers with some order in them, so that they compress."""
    base = np.arange(np.prod(SHAPE)).reshape(SHAPE)
    noise = rng.integers(0, 3, SHAPE)
    if dtype == "bool":
        return (noise > 1)
    if dtype.startswith("float"):
        return ((base - 100) / 8 + noise).astype(dtype)
    if dtype.startswith("int"):
        return (base - 100 + noise).astype(dtype)
    return (base + noise).astype(dtype)


all_values = {dtype: values(dtype) for dtype in DTYPES}
for dtype, value in all_values.items():
    np.save(os.path.join(here, dtype + ".npy"), value)


# ---- Zarr ----

def array(name, dtype, **o):
    value = all_values[dtype]
    o.setdefault("chunks", CHUNK)
    order = o.pop("byteorder", "<")
    stored = np.dtype(dtype).newbyteorder(order) if np.dtype(dtype).itemsize > 1 else np.dtype(dtype)
    a = zarr.create_array(os.path.join(here, "zarr", name), shape=value.shape, dtype=stored, **o)
    a[...] = value.astype(stored)
    return a


for dtype in DTYPES:
    array(f"v2-{dtype}", dtype, zarr_format=2, compressors=None, fill_value=0)
    array(f"v3-{dtype}", dtype, zarr_format=3, compressors=GzipCodec(level=5), fill_value=0)
array("v2-zlib", "float32", zarr_format=2, compressors=numcodecs.Zlib(5), fill_value=0)
array("v2-gzip", "float32", zarr_format=2, compressors=numcodecs.GZip(5), fill_value=0,
      chunk_key_encoding={"name": "v2", "separator": "/"})
array("v2-zstd", "float32", zarr_format=2, compressors=numcodecs.Zstd(3), fill_value=0)
for cname in ["lz4", "zstd", "zlib", "blosclz", "lz4hc"]:
    array(f"v2-blosc-{cname}", "float32", zarr_format=2, fill_value=0,
          compressors=numcodecs.Blosc(cname, 5, numcodecs.Blosc.SHUFFLE))
array("v2-big", "int32", zarr_format=2, byteorder=">", compressors=numcodecs.Zlib(5), fill_value=0)
array("v2-f", "int32", zarr_format=2, order="F", compressors=None, fill_value=0)
array("v2-lz4", "int32", zarr_format=2, compressors=numcodecs.LZ4(), fill_value=0)
array("v2-delta", "int32", zarr_format=2, filters=[numcodecs.Delta("<i4")], compressors=None, fill_value=0)
array("v3-plain", "float32", zarr_format=3, compressors=None, fill_value=0)
array("v3-zstd", "float32", zarr_format=3, compressors=ZstdCodec(level=3, checksum=True), fill_value=0)
array("v3-blosc", "float32", zarr_format=3, compressors=BloscCodec(cname="lz4", shuffle="bitshuffle"), fill_value=0)
array("v3-crc", "float32", zarr_format=3, compressors=Crc32cCodec(), fill_value=0)
array("v3-zstd-crc", "float32", zarr_format=3, compressors=[ZstdCodec(level=3), Crc32cCodec()], fill_value=0)
array("v3-big", "int32", zarr_format=3, serializer=BytesCodec(endian="big"), compressors=GzipCodec(), fill_value=0)
array("v3-v2keys", "int32", zarr_format=3, compressors=None, fill_value=0,
      chunk_key_encoding={"name": "v2", "separator": "."})
for name, inner in [("plain", []), ("zstd", [ZstdCodec()])]:
    for location in ["start", "end"]:
        array(f"v3-shard-{name}-{location}", "float32", zarr_format=3, chunks=(8, 4, 6), compressors=None, fill_value=0,
              serializer=ShardingCodec(chunk_shape=(4, 2, 3), codecs=[BytesCodec(), *inner], index_location=location))

# Arrays of which some chunks were never written.
def holes(name, dtype, fill, **o):
    a = zarr.create_array(os.path.join(here, "zarr", name), shape=SHAPE, chunks=o.pop("chunks", CHUNK), dtype=dtype,
                          fill_value=fill, **o)
    a[4:8, 0:4, 3:5] = all_values[dtype][4:8, 0:4, 3:5]
    np.save(os.path.join(here, "zarr", name, "whole.npy"), a[...].astype(dtype))


holes("v2-holes", "int16", -7, zarr_format=2, compressors=None)
holes("v3-holes", "float32", 2.5, zarr_format=3, compressors=GzipCodec())
holes("v3-nan", "float16", float("nan"), zarr_format=3, compressors=None)
holes("v3-big-holes", "int32", 258, zarr_format=3, serializer=BytesCodec(endian="big"), compressors=None)
holes("v3-shard-holes", "float32", -1.5, zarr_format=3, chunks=(8, 4, 6), compressors=None,
      serializer=ShardingCodec(chunk_shape=(4, 2, 3), codecs=[BytesCodec(), ZstdCodec()]))
# Data types with 1-based names of their own, and chunks larger than the array.
array("v3-large-chunk", "uint64", zarr_format=3, chunks=(100, 6, 5), compressors=ZstdCodec(), fill_value=0)

# ---- HDF5 ----

with h5py.File(os.path.join(here, "data.h5"), "w") as f:
    g = f.create_group("group")
    for dtype, value in all_values.items():
        g.create_dataset(dtype, data=value)
        if np.dtype(dtype).itemsize > 1:
            g.create_dataset(dtype + "-big", data=value.astype(np.dtype(dtype).newbyteorder(">")))
    v = all_values["float32"]
    f.create_dataset("chunked", data=v, chunks=CHUNK)
    f.create_dataset("gzip", data=v, chunks=CHUNK, compression="gzip")
    f.create_dataset("shuffle", data=v, chunks=CHUNK, compression="gzip", shuffle=True)
    f.create_dataset("fletcher", data=v, chunks=CHUNK, compression="gzip", shuffle=True, fletcher32=True)
    f.create_dataset("fletcher-plain", data=v, chunks=CHUNK, fletcher32=True)
    f.create_dataset("fletcher-odd", data=all_values["uint8"], chunks=(3, 5, 3), fletcher32=True)
    f.create_dataset("big-gzip", data=all_values["int32"].astype(">i4"), chunks=CHUNK, compression="gzip", shuffle=True)
    f.create_dataset("lzf", data=v, chunks=CHUNK, compression="lzf")
    f.create_dataset("grown", data=v, chunks=CHUNK, maxshape=(None, 6, 5), compression="gzip")
    h = f.create_dataset("holes", shape=SHAPE, dtype="int16", chunks=CHUNK, fillvalue=-7, compression="gzip")
    h[4:8, 0:4, 3:5] = all_values["int16"][4:8, 0:4, 3:5]
    np.save(os.path.join(here, "h5-holes.npy"), h[...])
    f.create_dataset("unwritten", shape=SHAPE, dtype="int32", fillvalue=258)
    f.create_dataset("text", data=[b"a", b"bc"])
    f.create_dataset("compound", data=np.zeros(3, dtype=[("a", "i4"), ("b", "f4")]))
    f.create_dataset("scalar", data=3)
    dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    dcpl.set_layout(h5py.h5d.COMPACT)
    d = h5py.h5d.create(f.id, b"compact", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple(SHAPE), dcpl)
    d.write(h5py.h5s.ALL, h5py.h5s.ALL, v)
for name, o in [("v110.h5", {"libver": ("v110", "v110")}), ("user.h5", {"userblock_size": 512})]:
    with h5py.File(os.path.join(here, name), "w", **o) as f:
        f.create_dataset("plain", data=v)
        f.create_dataset("chunked", data=v, chunks=CHUNK)
        f.create_dataset("gzip", data=v, chunks=CHUNK, compression="gzip")
        f.create_dataset("single", data=v, chunks=SHAPE, compression="gzip")
        f.create_dataset("grown", data=v, chunks=CHUNK, maxshape=(None, None, 5), compression="gzip")

# ---- safetensors ----

save_file({dtype: value for dtype, value in all_values.items()} | {"step": np.arange(3, dtype="int64")},
          os.path.join(here, "data.safetensors"))

# ---- all of them, in one small file ----


def plain(member):
    """The same whoever makes it, and when."""
    member.mtime = member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


with tarfile.open(target, "w:gz") as tar:
    for name in sorted(os.listdir(here)):
        tar.add(os.path.join(here, name), arcname=name, filter=plain)
shutil.rmtree(here)
