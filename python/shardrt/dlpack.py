"""Shards as capsules of DLPack, by which programs hand each other arrays in memory."""

import ctypes
from ctypes import CFUNCTYPE, PYFUNCTYPE, Structure, c_char_p, c_int32, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from ctypes import cast, py_object, pythonapi

from shardrt import library
from shardrt.errors import check

CPU = (1, 0)


class _Tensor(Structure):
    """DLTensor."""

    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("byte_offset", c_uint64),
    ]


_deleter = CFUNCTYPE(None, c_void_p)


class _Versioned(Structure):
    """DLManagedTensorVersioned."""

    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager_ctx", c_void_p),
        ("deleter", _deleter),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    ]


# Functions of Python's own, declared apart from ctypes.pythonapi.NAME, which all of a program share.
_capsule_new = PYFUNCTYPE(py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", pythonapi))
_keep = PYFUNCTYPE(None, py_object)(("Py_IncRef", pythonapi))

library.dlpack_python(cast(pythonapi.PyCapsule_IsValid, c_void_p), cast(pythonapi.PyCapsule_GetPointer, c_void_p))

_VERSIONED, _LEGACY = b"dltensor_versioned", b"dltensor"
_keep(_VERSIONED)  # capsules point to their names, and may be the last that Python frees
_keep(_LEGACY)


def _managed(handle: int, shard: int, stream: int | None, versioned: bool) -> int:
    out = c_void_p()
    function = library.array_dlpack if versioned else library.array_dlpack_legacy
    check(function(handle, shard, stream, ctypes.byref(out)))
    assert out.value is not None
    return out.value


def device(handle: int, shard: int) -> tuple[int, int]:
    """DLPack's type and number of the device that a shard lies on."""
    address = _managed(handle, shard, -1, True)
    managed = _Versioned.from_address(address)
    found = (managed.tensor.device_type, managed.tensor.device_id)
    managed.deleter(address)
    return found


def capsule(handle: int, shard: int, stream: int | None, versioned: bool) -> object:
    """A shard's capsule, with a count of its own of the memory."""
    name = _VERSIONED if versioned else _LEGACY
    return _capsule_new(_managed(handle, shard, stream, versioned), name, library.dlpack_capsule_free)
