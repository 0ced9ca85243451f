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

_capsule_new = pythonapi.PyCapsule_New
_capsule_new.restype, _capsule_new.argtypes = py_object, (c_void_p, c_char_p, c_void_p)
_capsule_is = pythonapi.PyCapsule_IsValid
_capsule_is.restype, _capsule_is.argtypes = c_int, (c_void_p, c_char_p)
_capsule_pointer = pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = c_void_p, (c_void_p, c_char_p)


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

    # The capsule has no owner left, so it comes as an address; at the end of Python globals may be gone.
    def free(capsule: int, name: bytes = name, is_named: Any = _capsule_is, get: Any = _capsule_pointer) -> None:
        if is_named(capsule, name):
            address = get(capsule, name)
            kind.from_address(address).deleter(address)

    function = PYFUNCTYPE(None, c_void_p)(free)
    pythonapi.Py_IncRef(py_object(function))  # capsules may be the last that Python frees
    pythonapi.Py_IncRef(py_object(name))  # to which they point
    return function


_VERSIONED, _LEGACY = b"dltensor_versioned", b"dltensor"
_free_versioned, _free_legacy = _destructor(_VERSIONED, _Versioned), _destructor(_LEGACY, _Legacy)


def capsule(handle: int, shard: int, stream: int | None, versioned: bool) -> object:
    """A shard's capsule, with a count of its own of the memory."""
    if versioned:
        return _capsule_new(_managed(handle, shard, stream, _Versioned), _VERSIONED, _free_versioned)
    return _capsule_new(_managed(handle, shard, stream, _Legacy), _LEGACY, _free_legacy)
