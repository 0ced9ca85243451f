"""A batch: arrays by the names of its fields."""

import ctypes
from collections.abc import Callable, Iterator, Mapping

from shardrt import job, library
from shardrt.array import Array


class Batch(Mapping[str, Array]):
    """A global batch, of which this process has its shards. It, its arrays and what is made of them without a copy keep
    the memory, also after the job; any thread may let go of them."""

    __slots__ = ("__weakref__", "handle")

    def __init__(self) -> None:
        self.handle = ctypes.c_void_p()  # the library's, which writes it here: so it is never without an owner

    def __getitem__(self, name: str) -> Array:
        found = None
        is_name = isinstance(name, str)  # pyright: ignore[reportUnnecessaryIsInstance]
        if is_name and "\0" not in name:  # where a text of C would end
            found = library.batch_find(self.handle, name.encode(errors="surrogateescape"))
        if found is None:
            raise KeyError(f"{name}: the batch has {', '.join(self)}")
        return Array(self, found)

    def __iter__(self) -> Iterator[str]:
        return (library.batch_name(self.handle, i).decode() for i in range(len(self)))

    def __len__(self) -> int:
        return library.batch_fields(self.handle)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return "Batch(" + ", ".join(f"{name}: {array.dtype}{list(array.shape)}" for name, array in self.items()) + ")"

    def __del__(
        self, is_forked: Callable[[], bool] = job.is_forked, free: Callable[..., None] = library.batch_free
    ) -> None:  # at the end of Python the modules may be empty
        if not is_forked():  # whose memory is the other process's
            free(getattr(self, "handle", None))  # None: Ctrl-C came while it was made
