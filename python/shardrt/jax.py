"""Batches as arrays of JAX, and jobs over jax.distributed.

    jax.distributed.initialize(…)
    sharding = NamedSharding(Mesh(jax.devices(), ("data",)), PartitionSpec("data"))
    with shardrt.open("recipe.lua", devices=jax.local_device_count(), transport=shardrt.jax.transport()) as data:
        for batch in data:
            shardrt.jax.global_array(batch["image"], sharding)
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from shardrt.array import Array, Shard
from shardrt.errors import Invalid
from shardrt.transport import Transport, hear, meet, tell

if TYPE_CHECKING:  # types are complete where JAX is installed; "ignore" is for where it is not
    from jax import Array as JaxArray  # pyright: ignore
    from jax.sharding import Sharding  # pyright: ignore

jax: Any = import_module("jax")
np: Any = import_module("numpy")

__all__ = ["global_array", "transport"]

_Box = tuple[tuple[int, int], ...]


def global_array(array: Array, sharding: Sharding) -> JaxArray:  # pyright: ignore
    """A global array as one of JAX's, whose shards are those of this process's devices: without a copy where they lie
    on the host and JAX computes there. `sharding` must cut it as shardrt did: ValueError says which part differs."""
    _check_dtype(array)
    shards: dict[_Box, list[Shard]] = {}
    for shard in array.shards:
        shards.setdefault(shard.box, []).append(shard)
    wanted = _wanted(sharding, array.shape)
    for device, box in wanted.items():
        if box not in shards:
            raise ValueError(
                f"JAX's {device} is to hold [{_text(box)}] of {array!r}, by {sharding}; in shardrt no device of this "
                f"process does: they hold {_texts(shards)}"
            )
    for box, same in shards.items():
        if box not in wanted.values():
            raise ValueError(
                f"device {same[0].device} holds [{_text(box)}] of {array!r}; by {sharding} none of JAX's devices in "
                f"this process does: they hold {_texts(wanted.values())}"
            )
    parts = [_put(shards[box], device) for device, box in wanted.items()]
    return jax.make_array_from_single_device_arrays(array.shape, sharding, parts)


def _check_dtype(array: Array) -> None:
    own = jax.dtypes.canonicalize_dtype(array.dtype.name)
    if own.name != array.dtype.name:
        raise TypeError(
            f"JAX would make {own} of {array!r}: cast it in the recipe (shardrt.transform.cast), or set jax_enable_x64"
        )


def _put(same: list[Shard], device: Any) -> Any:
    """One of several replicas on a device. JAX takes numpy's memory as it is where it computes on the host; DLPack
    would lead to its first device there."""
    if same[0].is_on_host:
        return jax.device_put(np.asarray(same[0]), device)
    near = [shard for shard in same if shard.__dlpack_device__()[1] == device.local_hardware_id]
    return jax.device_put(jax.dlpack.from_dlpack((near or same)[0]), device)


def _wanted(sharding: Any, shape: tuple[int, ...]) -> dict[Any, _Box]:
    """What each device of JAX's in this process is to hold."""
    indices = sharding.addressable_devices_indices_map(shape)
    return {
        device: tuple(along.indices(size)[:2] for along, size in zip(index, shape)) for device, index in indices.items()
    }


def _text(box: _Box) -> str:
    return ", ".join(f"{start}:{stop}" for start, stop in box)


def _texts(boxes: Iterable[_Box]) -> str:
    return ", ".join(f"[{_text(box)}]" for box in sorted(set(boxes))) or "nothing"


def transport() -> Transport:
    """A job of all processes of JAX, whose ranks are jax.process_index(), over the key-value store of jax.distributed.
    Every process opens the recipe with it."""
    if _client() is None:
        raise Invalid(
            "shardrt.jax.transport() gathers over jax.distributed: call jax.distributed.initialize first; "
            'transport="alone" is a job of this process only'
        )
    return _KeyValue()


def _client() -> Any:
    # JAX shows its store nowhere else.
    return import_module("jax._src.distributed").global_state.client


class _Store:
    """The store of JAX's coordinator, with a prefix before all keys."""

    def __init__(self, client: Any, prefix: str) -> None:
        self.client, self.prefix = client, prefix

    def add(self, key: str, count: int) -> int:
        number = int(self.find(key) or 0) + count  # JAX's own function for this is not in 0.7 yet
        if count != 0:
            self.set(key, str(number).encode())
        return number

    def set(self, key: str, value: bytes) -> None:
        self.client.key_value_set_bytes(self.prefix + key, value, allow_overwrite=True)

    def get(self, key: str) -> bytes:
        return self.client.key_value_try_get_bytes(self.prefix + key)

    def find(self, key: str) -> bytes | None:
        """None: it is not there, or not yet."""
        try:
            return self.get(key)
        except RuntimeError as problem:
            if str(problem).startswith("NOT_FOUND"):
                return None
            raise

    def list(self, folder: str) -> dict[str, bytes]:
        """What lies below a key, by the rest of its own."""
        found = self.client.key_value_dir_get_bytes(self.prefix + folder + "/")
        return {key.rpartition("/")[2]: value for key, value in found}

    def delete(self, folder: str) -> None:
        """A key, and all below it."""
        self.client.key_value_delete(self.prefix + folder)


class _KeyValue(Transport):
    """Each process writes what it gives. Process 0 puts all of it together under one key, which the others wait for, so
    that the store is asked a few times for each process. It deletes what all have read."""

    def __init__(self) -> None:
        self._rank: int = jax.process_index()
        self._size: int = jax.process_count()
        self._store = _Store(_client(), "shardrt/")
        self._job = ""  # below which its keys lie
        self._number = 0  # of the gathering
        self._next, self._pause = 0.0, 0.0  # when to look again, and how long to wait then

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _KeyValue)

    def __hash__(self) -> int:
        return hash(_KeyValue)

    def __repr__(self) -> str:
        return f"shardrt.jax.transport() of {self._size} processes"

    def join(self, timeout: float) -> tuple[int, int]:
        number = meet(self._store, self._rank, self._size, timeout)
        if self._rank == 0:
            self._store.delete(f"job {number - 1}")  # which nobody is in any more
        self._job, self._number = f"job {number}", 0
        return self._rank, self._size

    def start(self, mine: bytes) -> None:
        self._number += 1
        self._store.set(f"{self._job}/{self._number}/given/{self._rank}", mine)
        self._next, self._pause = 0.0, 0.0005

    def test(self) -> bytes | None:
        now = time.monotonic()
        if now < self._next:
            return None
        gathered = self._collect() if self._rank == 0 else self._store.find(f"{self._job}/{self._number}/all")
        # The more processes ask, the less often each does.
        self._pause = min(1.5 * self._pause, 0.01 + 0.0002 * self._size)
        self._next = time.monotonic() + self._pause
        return gathered

    def _collect(self) -> bytes | None:
        here = f"{self._job}/{self._number}"
        given = self._store.list(f"{here}/given")
        if len(given) < self._size:
            return None
        everything = b"".join(given[str(rank)] for rank in range(self._size))
        self._store.set(f"{here}/all", everything)
        # Who gives to this one has read what the one before gathered.
        self._store.delete(f"{here}/given")
        self._store.delete(f"{self._job}/{self._number - 1}")
        return everything

    def tell(self, word: str) -> bool:
        return tell(self._store, self._job, word)

    def hear(self) -> str | None:
        return hear(self._store, self._job)

    def leave(self) -> None:
        """What is left of its keys is deleted when the next job begins, or with the store."""
