"""Shards as tensors of PyTorch, a dataset for its DataLoader, and jobs over torch.distributed.

    transport = shardrt.torch.transport()  # under torchrun, after init_process_group
    with shardrt.open("recipe.lua", devices=1, transport=transport) as data:
        for batch in DataLoader(shardrt.torch.Batches(data), batch_size=None):
            batch["image"]  # a tensor: this process's rows
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from importlib import import_module
from math import prod
from typing import TYPE_CHECKING, Any

from torch.utils.data import IterableDataset  # pyright: ignore

from shardrt import library
from shardrt.array import Array, Shard
from shardrt.errors import Invalid, Timeout
from shardrt.recipe import Loader
from shardrt.transport import Aside, Call, Transport, hear, meet, tell

if TYPE_CHECKING:  # types are complete where PyTorch is installed; "ignore" is for where it is not
    from torch import Tensor  # pyright: ignore
    from torch.distributed import ProcessGroup  # pyright: ignore

torch: Any = import_module("torch")
dist: Any = import_module("torch.distributed")

__all__ = ["Batches", "tensor", "transport"]

_HAS_BOOL = not torch.__version__.startswith("1.")  # in its DLPack
_of_capsule: Any = import_module("torch.utils.dlpack").from_dlpack

_ANSWER = 0.2  # seconds that a store has for an answer which a loop waits for
_NO_WORKERS = "num_workers=0: shardrt has its own threads"


def tensor(what: Shard | Array) -> Tensor:  # pyright: ignore
    """A shard as a tensor, without a copy; of an array, what this process has of it: its shard, or several put together
    in a copy.

    PyTorch does not know memory that is read only, and neither refuses nor warns: a tensor without a copy must not be
    written to, as replicas and DataLoaders' other users share it. tensor(shard).clone() is yours."""
    if isinstance(what, Shard):
        return _of_shard(what)
    only = what.only_part()
    if only is not None:
        return _of_shard(only)
    boxes = {shard.box: shard for shard in reversed(what.shards)}  # one of each set of replicas
    if not boxes:
        raise ValueError(f"no device of this process has a part of {what!r}")
    starts = [min(box[d][0] for box in boxes) for d in range(what.ndim)]
    stops = [max(box[d][1] for box in boxes) for d in range(what.ndim)]
    shape = [stop - start for start, stop in zip(starts, stops)]
    if sum(prod(shard.shape) for shard in boxes.values()) != prod(shape):
        raise ValueError(f"the shards of this process are no box of {what!r}; take them one by one: {what.shards}")
    parts = [(box, _of_shard(shard)) for box, shard in boxes.items()]
    value = torch.empty(shape, dtype=parts[0][1].dtype, device=parts[0][1].device)
    for box, part in parts:
        value[tuple(slice(lo - start, hi - start) for (lo, hi), start in zip(box, starts))] = part
    return value


def _of_shard(shard: Shard) -> Any:
    if not _HAS_BOOL and shard.dtype.name == "bool":
        return _of_bytes(shard).view(torch.bool).view(shard.shape)
    try:
        # On the host there is no stream to ask for: the capsule alone is faster than the whole protocol.
        return _of_capsule(shard.__dlpack__()) if shard.is_on_host else torch.from_dlpack(shard)
    except RuntimeError as problem:
        raise TypeError(f"PyTorch {torch.__version__} takes no {shard!r}: {problem}; cast it in the recipe") from problem


def _of_bytes(shard: Shard) -> Any:
    """Of elements of one byte, on the host."""
    count = prod(shard.shape)
    if count == 0:
        return torch.empty(0, dtype=torch.uint8)
    memory: Any = (ctypes.c_uint8 * count).from_address(shard.__array_interface__["data"][0])
    memory.owner = shard  # for as long as the tensor holds the memory
    return torch.frombuffer(memory, dtype=torch.uint8)


class Batches(IterableDataset["dict[str, Tensor]"]):  # pyright: ignore
    """A loader's batches as DataLoader takes them: DataLoader(Batches(data), batch_size=None).

    Each is a dict of what this process has of every field, as `tensor` gives it. One iteration is one epoch, or what is
    left of it after load_state_dict; the loader's `epochs` says how many there are. StatefulDataLoader keeps its state.
    """

    def __init__(self, loader: Loader) -> None:
        super().__init__()  # pyright: ignore
        self._loader = loader

    def __iter__(self) -> Iterator[dict[str, Tensor]]:  # pyright: ignore
        if torch.utils.data.get_worker_info() is not None:
            raise Invalid(_NO_WORKERS)
        return self._epoch()

    def _epoch(self) -> Iterator[dict[str, Any]]:
        for batch in self._loader:
            is_last = self._loader.next_row() == 0
            yield {name: tensor(batch[name]) for name in batch}
            if is_last:
                return

    def __repr__(self) -> str:
        return f"Batches({self._loader!r})"

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self._loader)

    def __getstate__(self) -> object:
        raise Invalid(_NO_WORKERS)  # DataLoader sends it to another process

    def state_dict(self) -> dict[str, Any]:
        return self._loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._loader.load_state_dict(state)


def transport(group: ProcessGroup | None = None) -> Transport:  # pyright: ignore
    """A job of the processes of a group of torch.distributed (None: of all), of any backend: under torchrun, say. Every
    process of the group opens the recipe with it, and ranks are the group's.

    It gathers over gloo, in a group of its own that it makes for each job by the group's store, so that it may be used
    beside the program's own collectives, and destroy_process_group may come before the job's end."""
    if not dist.is_available() or not dist.is_initialized():
        raise Invalid(
            "shardrt.torch.transport() gathers over torch.distributed: call torch.distributed.init_process_group first; "
            'transport="alone" is a job of this process only'
        )
    return _Gloo(group)


class _Patient:
    """A store of torch.distributed, which waits for its host without a limit: until `until` here, by the clock."""

    def __init__(self, store: Any, aside: Aside, until: float) -> None:
        self._store, self._aside, self._until = store, aside, until

    def _ask(self, what: Callable[[], Any]) -> Any:
        return self.wait(self._aside.begin(what))

    def wait(self, call: Call[Any]) -> Any:
        if not call.has_ended(max(0, self._until - time.monotonic())):
            raise Timeout(_silent(call), library.ETIMEOUT)
        return call.value()

    def add(self, key: str, count: int) -> int:
        return self._ask(lambda: self._store.add(key, count))

    def set(self, key: str, value: bytes) -> None:
        self._ask(lambda: self._store.set(key, value))

    def get(self, key: str) -> bytes:
        """Of a key that was set: the store's own function waits for others."""
        return self._ask(lambda: self._store.get(key))


def _silent(call: Call[Any]) -> str:
    at = [os.environ[name] for name in ("MASTER_ADDR", "MASTER_PORT") if name in os.environ]
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return (
        f"the store of torch.distributed{' at ' if at else ''}{':'.join(at)} has not answered for "
        f"{time.monotonic() - call.begun:.1f} seconds: who holds it, {'torchrun' if agent else 'process 0'} unless the "
        "program has another, is stopped or cut off"
    )


class _Gloo(Transport):
    def __init__(self, group: Any) -> None:
        self._rank: int = dist.get_rank(group)
        self._size: int = dist.get_world_size(group)
        if self._rank < 0:
            raise Invalid("this process is not in the group that shardrt.torch.transport was given")
        whole = group is None or group is dist.group.WORLD
        members = range(self._size) if whole else [dist.get_global_rank(group, rank) for rank in range(self._size)]
        self._name: str = "shardrt/" + ("" if whole else ",".join(map(str, members)) + "/")
        self._store = dist.PrefixStore(self._name, dist.distributed_c10d._get_default_store())
        self._group: Any = None  # ProcessGroupGloo
        self._work: Any = None  # what is under way there
        self._given = self._all = torch.empty(0)
        self._job = ""  # below which its last word lies in the store
        self._aside = Aside()  # asks the store
        self._heard: Call[str | None] | None = None  # what it was asked last, if it has not answered

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Gloo) and self._name == other._name

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return f"shardrt.torch.transport() of {self._size} processes"

    def join(self, timeout: float) -> tuple[int, int]:
        try:
            self._meet(timeout)
        except BaseException:
            self._aside.end()
            raise
        return self._rank, self._size

    def _meet(self, timeout: float) -> None:
        store = _Patient(self._store, self._aside, time.monotonic() + timeout + _ANSWER)
        self._job = f"job {meet(store, self._rank, self._size, timeout)}"
        # All are here. Gatherings that last longer than any that shardrt waits for are given up.
        limit = timedelta(seconds=2 * timeout + 60)
        given = dist.PrefixStore(self._job, self._store), self._rank, self._size, limit
        self._group = store.wait(self._aside.begin(lambda: dist.ProcessGroupGloo(*given)))

    def start(self, mine: bytes) -> None:
        # PyTorch's own memory: gloo may use it as long as the program lives.
        self._given = torch.empty(len(mine), dtype=torch.uint8)
        ctypes.memmove(self._given.data_ptr(), mine, len(mine))
        self._all = torch.empty((self._size, len(mine)), dtype=torch.uint8)
        self._work = self._group.allgather([list(self._all.unbind())], [self._given])

    def test(self) -> bytes | None:
        if not self._work.is_completed():
            return None
        work, self._work = self._work, None
        work.wait()  # raises what went wrong
        return ctypes.string_at(self._all.data_ptr(), self._all.numel())

    def tell(self, word: str) -> bool:
        # Where the store is late, it hears the word later: the thread goes on.
        self._aside.begin(lambda: tell(self._store, self._job, word)).has_ended(_ANSWER)
        return True

    def hear(self) -> str | None:
        # Where the store is late, its answer counts when this is asked the next time.
        if self._heard is None:
            self._heard = self._aside.begin(lambda: hear(self._store, self._job))
            self._heard.has_ended(_ANSWER)
        if not self._heard.has_ended():
            return None
        heard, self._heard = self._heard, None
        return heard.value()

    def missing(self) -> str | None:
        return None if self._heard is None or self._heard.has_ended() else _silent(self._heard)

    def leave(self) -> None:
        self._aside.end()
        self._heard = None
        group, self._group = self._group, None
        if self._work is not None and not self._work.is_completed():
            # Its end would wait for what is under way: it is left to the end of the process.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))
        self._work = None
