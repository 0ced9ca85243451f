"""Global arrays and the shards of them that this process has."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from shardrt import dlpack, library
from shardrt.errors import check

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

_KINDS = {"bool": "b", "int": "i", "uint": "u", "float": "f"}  # of numpy's


@dataclass(frozen=True)
class DType:
    """The type of an array's elements, whose str() is numpy's name of it: numpy.dtype(str(array.dtype))."""

    name: str
    itemsize: int  # in bytes

    def __str__(self) -> str:
        return self.name

    @property
    def typestr(self) -> str | None:
        """As __array_interface__ has it; None: numpy by itself has no such type (bfloat16)."""
        kind = _KINDS.get(self.name.rstrip("0123456789"))
        return kind and ("<" if self.itemsize > 1 else "|") + kind + str(self.itemsize)


@cache
def _dtype(number: int) -> DType:
    return DType(library.dtype_name(number).decode(), library.dtype_size(number))


class Array:
    """A global array."""

    __slots__ = ("_handle", "_owner", "dtype", "shape")

    shape: tuple[int, ...]  # the global one
    dtype: DType

    def __init__(self, owner: object, handle: int) -> None:
        self._owner = owner  # of the handle
        self._handle = handle
        self.shape = tuple(library.array_shape(handle)[: library.array_ndim(handle)])
        self.dtype = _dtype(library.array_dtype(handle))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def sharding(self) -> str:
        """How it is cut, in words: NamedSharding(Mesh("data": 4, "model": 2), P("data", nil))."""
        return library.sharding_text(library.array_sharding(self._handle)).decode()

    @property
    def shards(self) -> tuple[Shard, ...]:
        """Those on this process's devices, in the mesh's order."""
        return tuple(Shard(self, self._handle, i) for i in range(library.array_shard_count(self._handle)))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """The whole value, where this process has it all: a shard that is whole as it is, others put together."""
        import numpy

        shards = self.shards
        if shards and shards[0].shape == self.shape:
            return shards[0].__array__(dtype, copy)
        if copy is False:
            raise ValueError("shards are put together in a copy: copy=False cannot be had")
        value = numpy.empty(self.shape, _of_numpy(self.dtype))
        check(library.array_gather(self._handle, value.ctypes.data))
        return value if dtype is None else value.astype(dtype, copy=False)

    def __repr__(self) -> str:
        return f"Array(shape={self.shape}, dtype={self.dtype}, sharding={self.sharding})"


class Shard:
    """What one device holds of an array: read-only, as replicas share it, and compact in row-major order."""

    __slots__ = ("__weakref__", "_array", "_handle", "_i", "device", "index", "replica_id")

    index: tuple[slice, ...]  # where it lies in the array, from … to
    device: int  # its id among those of the job
    replica_id: int  # how many devices before it hold the same

    def __init__(self, array: Array, handle: int, i: int) -> None:
        self._array, self._handle, self._i = array, handle, i
        shard = library.array_shard(handle, i).contents
        self.device = shard.device
        self.replica_id = shard.replica_id
        box = shard.box
        self.index = tuple(slice(box.start[d], box.stop[d]) for d in range(box.ndim))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(along.stop - along.start for along in self.index)

    @property
    def dtype(self) -> DType:
        return self._array.dtype

    @property
    def _buffer(self) -> int:
        return library.array_buffer(self._handle, self._i)

    @property
    def _is_on_host(self) -> bool:
        return library.buffer_device(self._buffer) < 0

    @property
    def __array_interface__(self) -> dict[str, Any]:
        typestr = self.dtype.typestr
        if typestr is None or not self._is_on_host:
            raise AttributeError(f"{self!r} is not memory that numpy knows; from_dlpack gives it to torch and JAX")
        return _interface(self.shape, typestr, library.buffer_data(self._buffer))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """It as it is; a shard on a GPU is copied to the host, and bfloat16 takes ml_dtypes."""
        import numpy

        out = ctypes.c_void_p()
        check(library.buffer_host(self._buffer, ctypes.byref(out)))
        known = self.dtype.typestr or f"<u{self.dtype.itemsize}"
        value: Any = numpy.asarray(_Memory(self, _interface(self.shape, known, out.value)))
        if self.dtype.typestr is None:
            value = value.view(_of_numpy(self.dtype))
        return numpy.array(value, dtype, copy=True) if copy else numpy.asarray(value, dtype)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A capsule of DLPack's, read-only; of the old kind, which cannot say so, without max_version >= (1, 0)."""
        if copy:
            raise BufferError("shards are handed out without a copy; copy what from_dlpack returns")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the shard lies on DLPack's device {self.__dlpack_device__()}, not on {dl_device}")
        versioned = max_version is not None and max_version[0] >= 1
        return dlpack.capsule(self._handle, self._i, stream, versioned)

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU if self._is_on_host else dlpack.device(self._handle, self._i)

    def __repr__(self) -> str:
        where = ", ".join(f"{along.start}:{along.stop}" for along in self.index)
        return f"Shard([{where}], dtype={self.dtype}, device={self.device})"


class _Memory:
    """Memory that numpy may look at as long as it has this."""

    def __init__(self, owner: object, interface: dict[str, Any]) -> None:
        self.owner = owner
        self.__array_interface__ = interface


def _interface(shape: tuple[int, ...], typestr: str, address: int | None) -> dict[str, Any]:
    return {"version": 3, "shape": shape, "typestr": typestr, "data": (address, True), "strides": None}


def _of_numpy(dtype: DType) -> DTypeLike:
    if dtype.typestr is not None:
        return dtype.name
    try:
        import ml_dtypes  # pyright: ignore
    except ImportError:
        raise TypeError(f"numpy has no {dtype}: ml_dtypes has; torch and JAX take it by from_dlpack") from None
    return getattr(ml_dtypes, dtype.name)  # pyright: ignore
