"""Global arrays and the shards of them that this process has."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from shardrt import dlpack, library
from shardrt.errors import check

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

_KINDS = {"bool": "b", "int": "i", "uint": "u", "float": "f"}  # of numpy's


@dataclass(frozen=True, eq=False, repr=False)
class DType:
    """The type of an array's elements, whose str() is its name: "float32". It equals that text, and numpy's type of the
    name; numpy takes it where it takes a type. In sets and dicts it is found by the text, not by numpy's type, whose
    hash is another."""

    name: str
    itemsize: int  # in bytes

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"shardrt.DType({self.name!r})"

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            return self.name == other.name
        if isinstance(other, str):
            return other in (self.name, self.typestr)
        numpy: Any = sys.modules.get("numpy")  # not loaded: `other` is no type of its
        if numpy is None or not isinstance(other, (numpy.dtype, type)):
            return NotImplemented
        try:
            return bool(numpy.dtype(other) == self.dtype)
        except TypeError:  # a class that is no type of elements; bfloat16, which is in another package
            return False

    @property
    def dtype(self) -> DTypeLike:
        """numpy's, which looks for it here: numpy.empty(3, array.dtype)."""
        import numpy

        return numpy.dtype(_of_numpy(self))

    @property
    def typestr(self) -> str | None:
        """As __array_interface__ has it; None: numpy by itself has no such type (bfloat16)."""
        kind = _KINDS.get(self.name.rstrip("0123456789"))
        return kind and ("<" if self.itemsize > 1 else "|") + kind + str(self.itemsize)


@cache
def _dtype(number: int) -> DType:
    return DType(library.dtype_name(number).decode(), library.dtype_size(number))


class _Place:
    """Where a shard lies: what Shard says of it."""

    __slots__ = ("box", "device", "dtype", "index", "replica_id", "shape", "typestr")

    def __init__(self, handle: int, i: int, dtype: DType) -> None:
        self.dtype = dtype
        self.typestr = dtype.typestr
        shard = library.array_shard(handle, i).contents
        self.device: int = shard.device
        self.replica_id: int = shard.replica_id
        box = shard.box
        self.box = tuple((box.start[d], box.stop[d]) for d in range(box.ndim))
        self.index = tuple(slice(start, stop) for start, stop in self.box)
        self.shape = tuple(stop - start for start, stop in self.box)


class _Layout:
    """What is alike in the arrays of one field, batch after batch."""

    __slots__ = ("dtype", "is_one_part", "places", "shape")

    def __init__(self, handle: int) -> None:
        self.shape: tuple[int, ...] = tuple(library.array_shape(handle)[: library.array_ndim(handle)])
        self.dtype = _dtype(library.array_dtype(handle))
        self.places = [_Place(handle, i, self.dtype) for i in range(library.array_shard_count(handle))]
        self.is_one_part = len({place.box for place in self.places}) == 1


_layouts: dict[int, _Layout] = {}  # by the library's numbers, of which none comes again
_MOST_LAYOUTS = 256


def _layout(handle: int) -> _Layout:
    number = library.array_layout(handle)
    found = _layouts.get(number)
    if found is None:
        if len(_layouts) >= _MOST_LAYOUTS:
            _layouts.clear()
        found = _layouts[number] = _Layout(handle)
    return found


class Array:
    """A global array."""

    __slots__ = ("_handle", "_layout", "_owner", "dtype", "shape")

    shape: tuple[int, ...]  # the global one
    dtype: DType

    def __init__(self, owner: object, handle: int) -> None:
        self._owner = owner  # of the handle
        self._handle = handle
        self._layout = layout = _layout(handle)
        self.shape = layout.shape
        self.dtype = layout.dtype

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
        return tuple([Shard(self, self._handle, i, place) for i, place in enumerate(self._layout.places)])

    def only_part(self) -> Shard | None:
        """The shard that this process has, one of them where all hold the same; None: they differ, or there is none."""
        layout = self._layout
        return Shard(self, self._handle, 0, layout.places[0]) if layout.is_one_part else None

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

    __slots__ = ("__weakref__", "_array", "_handle", "_i", "_place")

    def __init__(self, array: Array, handle: int, i: int, place: _Place) -> None:
        self._array, self._handle, self._i, self._place = array, handle, i, place

    @property
    def index(self) -> tuple[slice, ...]:
        """Where it lies in the array, from … to."""
        return self._place.index

    @property
    def box(self) -> tuple[tuple[int, int], ...]:
        """The same, as pairs of numbers."""
        return self._place.box

    @property
    def device(self) -> int:
        """Its id among those of the job."""
        return self._place.device

    @property
    def replica_id(self) -> int:
        """How many devices before it hold the same."""
        return self._place.replica_id

    @property
    def shape(self) -> tuple[int, ...]:
        return self._place.shape

    @property
    def dtype(self) -> DType:
        return self._place.dtype

    @property
    def is_on_host(self) -> bool:
        return self._address is not None

    @property
    def _address(self) -> int | None:
        """None: on a GPU."""
        return library.array_host_data(self._handle, self._i)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        typestr, address = self._place.typestr, self._address
        if typestr is None or address is None:
            raise AttributeError(f"{self!r} is not memory that numpy knows; from_dlpack gives it to torch and JAX")
        return _interface(self._place.shape, typestr, address)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """It as it is; a shard on a GPU is copied to the host, and bfloat16 takes ml_dtypes."""
        import numpy

        out = ctypes.c_void_p()
        check(library.buffer_host(library.array_buffer(self._handle, self._i), ctypes.byref(out)))
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
        return dlpack.CPU if self.is_on_host else dlpack.device(self._handle, self._i)

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
