"""A recipe that was opened, and its loaders."""

import ctypes
import json
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any

from shardrt import job, library
from shardrt.batch import Batch
from shardrt.errors import Error, Invalid, UnknownLoader, check
from shardrt.transport import Transport


class _Opened:
    """The library's handles for a recipe and its loaders, which are given back together."""

    def __init__(self, path: str | os.PathLike[str], arguments: Sequence[str], options: job.Options) -> None:
        file = os.fsencode(path)
        if isinstance(arguments, (str, bytes)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"args is a list of texts, as in args=[{arguments!r}], not one text")
        words = (ctypes.c_char_p * len(arguments))(*(os.fsencode(word) for word in arguments))
        out = ctypes.c_void_p()
        self.handles: dict[str, ctypes.c_void_p] = {"": out}
        self.batches: dict[str, Batch | None] = {}  # of each loader the one that was asked for and has not arrived yet
        self.has_given: set[str] = set()  # the loaders that gave a batch since they were opened or set to a state
        self.resting: str | None = None  # the loader whose call of shardrt_next may rest between two slices
        self.itself: weakref.ref[_Opened] = weakref.ref(self)
        _finish()
        self.path = os.fspath(path)
        self.job = job.enter(options, self)
        try:
            check(library.in_slices(library.recipe_open, file, len(words), words, ctypes.byref(out)))
        except BaseException as problem:
            self.job.give_up(self, problem)
            raise

    def get(self, name: str) -> ctypes.c_void_p:
        if not self.handles:
            raise Invalid("the recipe was closed")
        out = self.handles.get(name)
        if out is None or out.value is None:
            out = self.handles[name] = ctypes.c_void_p()
            code = library.recipe_loader(self.handles[""], name.encode(), ctypes.byref(out))
            if code < 0:
                del self.handles[name]
                raise UnknownLoader(library.message_of_error(), code)
        return out

    def take(self, name: str) -> Batch | None:
        """The next batch, which stays in `batches` until it is taken from there; None after the last one."""
        global _resting
        handle = self.get(name)
        _finish(self, name)
        batch = self.batches.get(name)
        if batch is None:
            batch = self.batches[name] = Batch()
        while batch.handle.value is None:
            _resting, self.resting = self.itself, name
            code = library.recipe_next(handle, library.SLICE, ctypes.byref(batch.handle))
            if code == library.EAGAIN:
                continue
            self.resting = None
            if code <= 0:
                self.batches[name] = None
                check(code)
                return None
        self.resting = None
        return batch

    def give_back(self) -> bool:
        """Whether there was anything to give back."""
        handles, self.handles = self.handles, {}
        self.batches.clear()
        self.resting = None
        for handle in handles.values():
            library.recipe_close(handle)
        return len(handles) > 0

    def __del__(self) -> None:
        # Collected, and not closed: the collector says when and on which thread, so that nothing here may wait for
        # other processes. Without a job it was never opened.
        if "job" not in self.__dict__ or not self.handles:
            return
        if self.resting is not None:
            self.job.abandon()
        self.job.recipes.discard(self)
        self.give_back()


_resting: "weakref.ref[_Opened] | None" = None  # whose call may rest: the job has one at a time


def _finish(opened: _Opened | None = None, name: str = "") -> None:
    """Brings a call to its end that Ctrl-C left between two slices, unless it is this loader's. Its batch waits for
    whoever asks that loader next."""
    other = _resting() if _resting is not None else None
    if other is None or other.resting is None or (other is opened and other.resting == name):
        return
    if other.job.is_on():
        other.take(other.resting)


class _Batches(Iterator[Batch]):
    """The batches of a loader, from where it stands to the end of its epochs."""

    __slots__ = ("_is_begun", "_name", "_opened")

    def __init__(self, opened: _Opened, name: str) -> None:
        self._opened, self._name = opened, name
        self._is_begun = False  # a batch was asked for

    def __next__(self) -> Batch:
        """Ctrl-C at any place loses no batch: until this function returns, the recipe has it."""
        batches, name = self._opened.batches, self._name
        batch = self._opened.take(name)
        if batch is None:
            if not self._is_begun and name in self._opened.has_given:
                raise _used_up(name)
            raise StopIteration
        if not self._is_begun:
            self._opened.has_given.add(name)
            self._is_begun = True
        batches[name] = None  # here and at what follows Python hears no signal
        return batch


def _used_up(name: str) -> Invalid:
    """A loop that would do nothing: who writes a second one expects batches, as of a list or of DataLoader."""
    which = f'the loader "{name}"' if name else "the loader"
    return Invalid(
        f"{which} has given all batches of its epochs: `epochs` in the recipe says how many there are (without it they "
        "never end), and load_state_dict(state) goes back to a state that state_dict() gave before"
    )


class Loader:
    """Batches of one loader, in the same order in every process. The thread that opened the recipe takes them."""

    def __init__(self, opened: _Opened, name: str) -> None:
        self._opened = opened
        self._name = name

    def __iter__(self) -> Iterator[Batch]:
        """The batches from where the loader stands to the end of its epochs. A loop that begins there although an
        earlier one had batches is an error; after load_state_dict it has none."""
        return _Batches(self._opened, self._name)

    def __len__(self) -> int:
        """Batches of an epoch."""
        return library.recipe_steps(self._opened.get(self._name))

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._text()})"

    def _text(self) -> str:
        which = f"{self._name!r} of " if self._name else ""
        return f"{which}{self._opened.path!r}{'' if self._opened.handles else ', closed'}"

    def next_row(self) -> int:
        """Where its next batch begins in the epoch; 0: a new epoch."""
        epoch, row = ctypes.c_int64(), ctypes.c_int64()
        check(library.recipe_tell(self._opened.get(self._name), ctypes.byref(epoch), ctypes.byref(row)))
        return row.value

    def state_dict(self) -> dict[str, Any]:
        """Where it stands: numbers and texts, which JSON keeps, the same in every process. A batch that Ctrl-C kept
        from arriving is the next one."""
        batch = self._opened.batches.get(self._name)
        has_arrived = batch is None or batch.handle.value is None
        return self._ask(library.recipe_state if has_arrived else library.recipe_state_before)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from there, in a job of any size. Every process calls it."""
        handle = self._opened.get(self._name)
        _finish()
        text = json.dumps(state).encode()
        unwanted = self._drop()
        try:
            check(library.recipe_restore(handle, text))
        except Error:
            self._opened.batches.update(unwanted)
            raise
        self._opened.has_given.difference_update(unwanted)

    def _drop(self) -> dict[str, Batch | None]:
        """Gives what was asked for and has not arrived."""
        return {self._name: self._opened.batches.pop(self._name, None)}

    def stats(self) -> dict[str, Any]:
        """What it did in this process; "held_bytes" are those of batches that are still held."""
        return self._ask(library.recipe_stats)

    def _ask(self, function: Callable[..., int]) -> dict[str, Any]:
        out = ctypes.c_void_p()
        try:
            check(function(self._opened.get(self._name), ctypes.byref(out)))
            assert out.value is not None
            return json.loads(ctypes.string_at(out.value))
        finally:
            library.text_free(out)


class Recipe(Loader):
    """A recipe that was opened: the loader that it returned, or several by their names."""

    names: tuple[str, ...]  # of its loaders; empty where it returned one alone

    def __init__(self, opened: _Opened) -> None:
        super().__init__(opened, "")
        self.names = ()
        handle = opened.get("")
        count = library.recipe_count(handle)
        self.names = tuple(library.recipe_name(handle, i).decode() for i in range(count))

    def __getitem__(self, name: str) -> Loader:
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"data[{name!r}]: loaders have names; `for batch in data` gives batches, and DataLoader takes "
                "shardrt.torch.Batches(data)"
            )
        self._opened.get(name)
        return Loader(self._opened, name)

    def __iter__(self) -> Iterator[Batch]:
        self._check_alone()
        return super().__iter__()

    def __len__(self) -> int:
        self._check_alone()
        return super().__len__()

    def state_dict(self) -> dict[str, Any]:
        """Where it stands, or its loaders do, by their names."""
        return {name: self[name].state_dict() for name in self.names} if self.names else super().state_dict()

    def _text(self) -> str:
        return super()._text() + (f", loaders {', '.join(map(repr, self.names))}" if self.names else "")

    def _drop(self) -> dict[str, Batch | None]:
        batches = dict(self._opened.batches)
        self._opened.batches.clear()
        return batches

    def _check_alone(self) -> None:
        if self.names:
            raise TypeError(f'the recipe returned loaders {self.names}: pick one, as data["{self.names[0]}"]')

    def close(self) -> None:
        """Ends its loaders; batches stay. With the last recipe the job is left: every process must come here."""
        opened = self._opened
        if opened.job.is_elsewhere():
            raise Invalid("close: another thread opened the recipe; the one that did closes it")
        if not opened.handles:
            return
        try:
            _finish()
        except BaseException as problem:
            self._abandon(problem)
            raise
        opened.give_back()
        opened.job.release(opened)

    def ask_stop(self) -> None:
        """Asks for an orderly end, as a signal of stop_signals does: the next batch raises shardrt.Stopped, in all
        processes the same one. Any thread."""
        if self._opened.job.options.stop_signals is None:
            raise Error("ask_stop: a job is only asked where shardrt.open has stop_signals=[…]; [] names no signal")
        library.stop_ask()

    def _abandon(self, problem: BaseException | None) -> None:
        """Waits for nobody."""
        opened = self._opened
        opened.job.abandon(problem)
        opened.job.recipes.discard(opened)
        opened.give_back()

    def __enter__(self) -> "Recipe":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """By an exception the whole job is abandoned, and nobody is waited for."""
        if kind is None:
            self.close()
        else:
            self._abandon(problem)


def open(  # noqa: A001
    recipe: str | os.PathLike[str],
    args: Sequence[str] = (),
    *,
    devices: int | None = None,
    timeout: float | None = None,
    platform: str | None = None,
    transport: str | Transport | None = None,
    handle_sigbus: bool | None = None,
    stop_signals: Iterable[int] | None = None,
    report: str | os.PathLike[str] | None = None,
    metrics: str | os.PathLike[str] | None = None,
) -> Recipe:
    """Runs a recipe that returns a loader, or a table of loaders by name. Every process of a job does.

    args: the recipe's `arg`. devices: of each process. timeout: seconds that another process is waited for.
    platform: "host" or "cuda". transport: how its processes find each other, by MPI where mpirun or srun started them;
    "alone" for a job of this process only; shardrt.torch.transport(), shardrt.jax.transport() or one of your own.
    handle_sigbus: a data file that is cut short while it is read ends the process with a line that names it, in place
    of "Bus error". stop_signals: those that ask for an orderly end, the same in all processes, as
    [signal.SIGTERM, signal.SIGUSR1]; the loop then ends by shardrt.Stopped, before the same batch everywhere.
    report: where a page about the job is written at its end; metrics: where numbers for Prometheus are kept. Without
    them, SHARDRT_REPORT and SHARDRT_METRICS name the files.
    """
    signals = None if stop_signals is None else tuple(stop_signals)
    wanted = job.Options(
        devices,
        timeout,
        platform,
        transport,
        handle_sigbus,
        signals,
        None if report is None else os.fspath(report),
        None if metrics is None else os.fspath(metrics),
    )
    return Recipe(_Opened(recipe, args, wanted))
