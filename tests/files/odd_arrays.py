#!/usr/bin/env python3
"""Writes tests/files/odd_arrays.tar.gz, with the formats' own software: bools that are bytes other than 0 and 1, as numpy
and h5py read them, HDF5 types that only look like shardrt's, and HDF5 files whose shape a spec changes. Read by
tests/array/array_files_spec.lua.

    python3 -m venv env && env/bin/pip install numpy 'zarr>=3' h5py safetensors
    env/bin/python tests/files/odd_arrays.py
"""
import os
import shutil
import tarfile
import tempfile

import h5py
import numpy as np
import zarr
from safetensors.numpy import save_file

target = os.path.join(os.path.dirname(os.path.abspath(__file__)), "odd_arrays.tar.gz")
here = tempfile.mkdtemp()


def path(name):
    return os.path.join(here, name)


# ---- bools ----

odd = np.array([[0, 1, 2, 0], [255, 0, 128, 1], [64, 1, 0, 0]], "u1")
np.save(path("right.npy"), (odd != 0).astype("u1"))
np.save(path("bool.npy"), odd.view(bool))
np.savez(path("bool.npz"), x=odd.view(bool))
np.savez_compressed(path("bool-deflated.npz"), x=odd.view(bool))
save_file({"x": odd.view(bool)}, path("bool.safetensors"))
for version, chunk in [(2, "0.0"), (3, "c/0/0")]:
    zarr.create_array(path(f"bool-v{version}"), shape=odd.shape, chunks=odd.shape, dtype="bool", zarr_format=version,
                      compressors=None, fill_value=False)[...] = odd != 0
    with open(path(f"bool-v{version}/{chunk}"), "wb") as out:
        out.write(odd.tobytes())


def write(file, name, kind, data, chunks=None):
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if chunks is not None:
        plist.set_chunk(chunks)
    dataset = h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create_simple(data.shape), plist)
    dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, data, mtype=kind)


with h5py.File(path("bool.h5"), "w") as f:
    kind = h5py.h5t.py_create(np.dtype(bool), logical=True)
    write(f, "plain", kind, odd.view("i1"))
    write(f, "chunked", kind, odd.view("i1"), chunks=(2, 3))

# ---- types of HDF5 ----


def floats(sign, exponent, exponent_bits, fraction_bits, bias):
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_fields(sign, exponent, exponent_bits, 0, fraction_bits)
    kind.set_size(2)
    kind.set_ebias(bias)
    return kind


def integers(kind, precision, offset):
    kind = kind.copy()
    kind.set_precision(precision)
    kind.set_offset(offset)
    return kind


def enumeration(base, **members):
    kind = h5py.h5t.enum_create(base)
    for name, value in members.items():
        kind.enum_insert(name.encode(), value)
    return kind


two, four = np.zeros(4, "u2"), np.zeros(4, "i4")
one = np.array([0, 1, 1, 0], "i1")
with h5py.File(path("types.h5"), "w") as f:
    write(f, "bool", enumeration(h5py.h5t.STD_U8LE, FALSE=0, TRUE=1), one)
    write(f, "float16", floats(15, 10, 5, 10, 15), np.array([1, 2, -3, 0.5], "f2").view("u2"))
    write(f, "turned", enumeration(h5py.h5t.STD_I8LE, FALSE=1, TRUE=0), one)
    write(f, "colours", enumeration(h5py.h5t.STD_I8LE, RED=0, GREEN=1), one)
    write(f, "three", enumeration(h5py.h5t.STD_I8LE, FALSE=0, TRUE=1, MAYBE=2), one)
    write(f, "wide", enumeration(h5py.h5t.STD_I32LE, FALSE=0, TRUE=1), four)
    write(f, "bfloat16", floats(15, 7, 8, 7, 127), two)
    write(f, "bias", floats(15, 10, 5, 10, 14), two)
    write(f, "int12", integers(h5py.h5t.STD_I16LE, 12, 0), two)
    write(f, "uint12", integers(h5py.h5t.STD_U16LE, 12, 4), two)
    write(f, "bits8", h5py.h5t.STD_B8LE.copy(), one)
    write(f, "bits16", h5py.h5t.STD_B16LE.copy(), two)
    f.create_dataset("opaque", data=np.zeros(4, "V2"))
    f.create_dataset("complex", data=np.zeros(4, "c8"))
    f.create_dataset("long", data=np.zeros(4, "g"))
    f.create_dataset("reference", data=[f["bool"].ref], dtype=h5py.ref_dtype)
    h5py.h5d.create(f.id, b"lists", h5py.h5t.array_create(h5py.h5t.STD_I32LE, (2,)), h5py.h5s.create_simple((4,)))

# ---- shapes of HDF5 ----

rows = np.arange(61 * 7, dtype="i4").reshape(61, 7)
for name, o in {"piece": {}, "fixed": {"chunks": (8, 7)}, "grows": {"chunks": (8, 7), "maxshape": (None, 7)}}.items():
    with h5py.File(path(name + ".h5"), "w") as f:
        f.create_dataset("x", data=rows, **o)
np.save(path("rows.npy"), rows)


def plain(member):
    """The same whoever makes it, and when."""
    member.mtime = member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


with tarfile.open(target, "w:gz") as tar:
    for name in sorted(os.listdir(here)):
        tar.add(path(name), arcname=name, filter=plain)
shutil.rmtree(here)
