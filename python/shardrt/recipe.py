"""A recipe that was opened, and its loaders."""

import ctypes
import json
import os
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

from shardrt import job, library
from shardrt.batch import Batch
from shardrt.errors import Error, UnknownLoader, check, failure
from shardrt.transport import Transport

_SLICE = 0.2  # seconds in the library, between which Ctrl-C is heard


class _Opened:
    """The library's handles for a recipe and its loaders, which are given back together."""

    def __init__(self, path: str | os.PathLike[str], arguments: Sequence[str], options: job.Options) -> None:
        file = os.fsencode(path)
        words = (ctypes.c_char_p * len(arguments))(*(os.fsencode(word) for word in arguments))
        out = ctypes.c_void_p()
        self.rests = False  # a call of shardrt_next was left between two slices
        self.job = job.enter(options)
        code = library.recipe_open(file, len(words), words, ctypes.byref(out))
        self.handles: dict[str, int | None] = {"": out.value}
        if code < 0:
            problem = failure(code)
            self.job.recipes -= 1
            if self.job.recipes == 0:
                self.job.abandon()
            raise problem

    def get(self, name: str) -> int:
        if not self.handles:
            raise Error("the recipe was closed")
        if name not in self.handles:
            out = ctypes.c_void_p()
            code = library.recipe_loader(self.handles[""], name.encode(), ctypes.byref(out))
            if code < 0:
                raise UnknownLoader(library.message_of_error(), code)
            self.handles[name] = out.value
        handle = self.handles[name]
        assert handle is not None
        return handle

    def give_back(self) -> bool:
        """Whether there was anything to give back."""
        handles, self.handles = self.handles, {}
        for handle in handles.values():
            library.recipe_close(handle)
        return len(handles) > 0

    def __del__(self) -> None:
        # Collected, and not closed: the collector says when, so that nothing here may wait for other processes.
        if not self.__dict__.get("handles"):
            return
        if self.rests:
            self.job.abandon()
        if self.give_back():
            self.job.recipes -= 1


class Loader:
    """Batches of one loader, in the same order in every process. The thread that opened the recipe takes them."""

    def __init__(self, opened: _Opened, name: str) -> None:
        self._opened = opened
        self._name = name

    def __iter__(self) -> Iterator[Batch]:
        """The batches from where the loader stands to the end of its epochs."""
        return iter(self._next, None)

    def _next(self) -> Batch | None:
        handle = self._opened.get(self._name)
        out = ctypes.c_void_p()
        while True:
            self._opened.rests = True
            code = library.recipe_next(handle, _SLICE, ctypes.byref(out))
            self._opened.rests = code == library.EAGAIN
            if code == 1:
                return Batch(out.value)
            if code == 0:
                return None
            if code != library.EAGAIN:
                raise failure(code)

    def __len__(self) -> int:
        """Batches of an epoch."""
        return library.recipe_steps(self._opened.get(self._name))

    def __bool__(self) -> bool:
        return True

    def state_dict(self) -> dict[str, Any]:
        """Where it stands: numbers and texts, which JSON keeps, the same in every process."""
        return self._ask(library.recipe_state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from there, in a job of any size. Every process calls it."""
        check(library.recipe_restore(self._opened.get(self._name), json.dumps(state).encode()))

    def stats(self) -> dict[str, Any]:
        """What it did in this process; "held_bytes" are those of batches that are still held."""
        return self._ask(library.recipe_stats)

    def _ask(self, function: Callable[..., int]) -> dict[str, Any]:
        out = ctypes.c_void_p()
        check(function(self._opened.get(self._name), ctypes.byref(out)))
        assert out.value is not None
        text = ctypes.string_at(out.value)
        library.text_free(out)
        return json.loads(text)


class Recipe(Loader):
    """A recipe that was opened: the loader that it returned, or several by their names."""

    names: tuple[str, ...]  # of its loaders; empty where it returned one alone

    def __init__(self, opened: _Opened) -> None:
        super().__init__(opened, "")
        handle = opened.get("")
        count = library.recipe_count(handle)
        self.names = tuple(library.recipe_name(handle, i).decode() for i in range(count))

    def __getitem__(self, name: str) -> Loader:
        self._opened.get(name)
        return Loader(self._opened, name)

    def __iter__(self) -> Iterator[Batch]:
        self._check_alone()
        return super().__iter__()

    def __len__(self) -> int:
        self._check_alone()
        return super().__len__()

    def _check_alone(self) -> None:
        if self.names:
            raise TypeError(f'the recipe returned loaders {self.names}: pick one, as data["{self.names[0]}"]')

    def close(self) -> None:
        """Ends its loaders; batches stay. With the last recipe the job is left: every process must come here."""
        if self._opened.give_back():
            self._opened.job.release()

    def __enter__(self) -> "Recipe":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """By an exception the whole job is abandoned, and nobody is waited for."""
        if kind is None:
            self.close()
        else:
            self._opened.job.abandon()
            self._opened.give_back()


def open(  # noqa: A001
    recipe: str | os.PathLike[str],
    args: Sequence[str] = (),
    *,
    devices: int | None = None,
    timeout: float | None = None,
    platform: str | None = None,
    transport: str | Transport | None = None,
) -> Recipe:
    """Runs a recipe that returns a loader, or a table of loaders by name. Every process of a job does.

    args: the recipe's `arg`. devices: of each process. timeout: seconds that another process is waited for.
    platform: "host" or "cuda". transport: how its processes find each other, by MPI where mpirun or srun started them;
    "alone" for a job of this process only; shardrt.torch.transport(), shardrt.jax.transport() or one of your own.
    """
    return Recipe(_Opened(recipe, args, job.Options(devices, timeout, platform, transport)))
