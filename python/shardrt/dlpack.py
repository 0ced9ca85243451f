"""Shards as capsules of DLPack, by which programs hand each other arrays in memory."""

import ctypes
from ctypes import CFUNCTYPE, PYFUNCTYPE, Structure, c_char_p, c_int, c_int32, c_uint8, c_uint16, c_uint32, c_uint64
from ctypes import c_void_p, py_object, pythonapi
from typing import Any

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


class _Legacy(Structure):
    """DLManagedTensor."""

    _fields_ = [("tensor", _Tensor), ("manager_ctx", c_void_p), ("deleter", _deleter)]


_Kind = type[_Versioned] | type[_Legacy]

# Functions of Python's own, declared apart from ctypes.pythonapi.NAME, which all of a program share.
_capsule_new = PYFUNCTYPE(py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", pythonapi))
_capsule_is = PYFUNCTYPE(c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", pythonapi))
_capsule_pointer = PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", pythonapi))
_keep = PYFUNCTYPE(None, py_object)(("Py_IncRef", pythonapi))


def _managed(handle: int, shard: int, stream: int | None, kind: _Kind) -> int:
    out = c_void_p()
    function = library.array_dlpack if kind is _Versioned else library.array_dlpack_legacy
    check(function(handle, shard, stream, ctypes.byref(out)))
    assert out.value is not None
    return out.value


def device(handle: int, shard: int) -> tuple[int, int]:
    """DLPack's type and number of the device that a shard lies on."""
    address = _managed(handle, shard, -1, _Versioned)
    managed = _Versioned.from_address(address)
    found = (managed.tensor.device_type, managed.tensor.device_id)
    managed.deleter(address)
    return found


def _destructor(name: bytes, kind: _Kind) -> Any:
    """What a capsule calls that nobody consumed: who does gives it another name, and calls the deleter."""

    is_named, get = _capsule_is, _capsule_pointer  # at the end of Python globals may be gone

    def free(capsule: int) -> None:  # which has no owner left, so that it comes as an address
        if is_named(capsule, name):
            address = get(capsule, name)
            kind.from_address(address).deleter(address)

    function = PYFUNCTYPE(None, c_void_p)(free)
    _keep(function)  # capsules may be the last that Python frees
    _keep(name)  # to which they point
    return function


_VERSIONED, _LEGACY = b"dltensor_versioned", b"dltensor"
_free_versioned, _free_legacy = _destructor(_VERSIONED, _Versioned), _destructor(_LEGACY, _Legacy)


def capsule(handle: int, shard: int, stream: int | None, versioned: bool) -> object:
    """A shard's capsule, with a count of its own of the memory."""
    if versioned:
        return _capsule_new(_managed(handle, shard, stream, _Versioned), _VERSIONED, _free_versioned)
    return _capsule_new(_managed(handle, shard, stream, _Legacy), _LEGACY, _free_legacy)
