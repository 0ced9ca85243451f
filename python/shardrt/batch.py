"""A batch: arrays by the names of its fields."""

from collections.abc import Iterator, Mapping

from shardrt import job, library
from shardrt.array import Array


class Batch(Mapping[str, Array]):
    """A global batch, of which this process has its shards. It, its arrays and what is made of them without a copy keep
    the memory, also after the job; any thread may let go of them."""

    __slots__ = ("__weakref__", "_handle")

    def __init__(self, handle: int | None) -> None:
        self._handle = handle

    def __getitem__(self, name: str) -> Array:
        found = None
        is_name = isinstance(name, str)  # pyright: ignore[reportUnnecessaryIsInstance]
        if is_name and "\0" not in name:  # where a text of C would end
            found = library.batch_find(self._handle, name.encode(errors="surrogateescape"))
        if found is None:
            raise KeyError(f"{name}: the batch has {', '.join(self)}")
        return Array(self, found)

    def __iter__(self) -> Iterator[str]:
        return (library.batch_name(self._handle, i).decode() for i in range(len(self)))

    def __len__(self) -> int:
        return library.batch_fields(self._handle)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"Batch({', '.join(repr(array) for array in self.values())})"

    def __del__(self) -> None:
        if not job.is_forked():  # whose memory is the other process's
            library.batch_free(self._handle)
