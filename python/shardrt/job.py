"""The job of this process while recipes are open: joined with the first, left with the last."""

import atexit
import ctypes
import os
import threading
import weakref
from dataclasses import asdict, dataclass

from shardrt import library
from shardrt.errors import Error, check

_TRANSPORTS = {"auto": 0, "alone": 1}  # SHARDRT_TRANSPORT_…


@dataclass(frozen=True)
class Options:
    """How a job is joined; None: as the library chooses, or as the job that is joined has it."""

    devices: int | None = None
    timeout: float | None = None
    platform: str | None = None
    transport: str | None = None


class Job:
    """A job that is joined, until it is left."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.recipes: weakref.WeakSet[object] = weakref.WeakSet()  # that are open
        self.thread = threading.get_ident()  # which joins it, and makes all its calls

    def is_on(self) -> bool:
        """Whether it was not left yet."""
        return _current is self

    def is_elsewhere(self) -> bool:
        """Whether it is on, and another thread's."""
        return self.is_on() and self.thread != threading.get_ident()

    def leave(self) -> None:
        """Waits for the other processes, which leave, too. Whatever it raises, the process is out; but on another
        thread than the one that joined, it is still in."""
        if _current is not self:
            return
        code = library.leave()
        if code != library.EINVAL:
            _forget(self)
        check(code)

    def abandon(self) -> None:
        """Waits for nobody; on another thread than the one that joined it does nothing."""
        if not self.is_elsewhere() and _forget(self):
            library.abandon()

    def release(self, recipe: object) -> None:
        """One recipe less; with the last one the job is left."""
        self.recipes.discard(recipe)
        if not self.recipes:
            self.leave()

    def give_up(self, recipe: object) -> None:
        """One recipe less, by an error; with the last one the job is abandoned."""
        self.recipes.discard(recipe)
        if not self.recipes:
            self.abandon()


_current: Job | None = None
_process: int | None = None  # which joined: the library's threads are in no other


def _join(options: Options) -> None:
    wanted = library.Options()
    library.options_init(ctypes.byref(wanted))
    if options.devices is not None:
        wanted.devices = options.devices
    if options.timeout is not None:
        wanted.timeout = options.timeout
    if options.platform is not None:
        wanted.platform = options.platform.encode()
    if options.transport is not None:
        if options.transport not in _TRANSPORTS:
            raise Error(f'transport is "auto" or "alone", not {options.transport!r}')
        wanted.transport = _TRANSPORTS[options.transport]
    check(library.join(ctypes.byref(wanted)))


def _forget(job: Job) -> bool:
    """Whether it was the current one: another has ended before."""
    global _current
    if _current is not job:
        return False
    _current = None
    return True


def is_forked() -> bool:
    return _process is not None and _process != os.getpid()


def _check_options(job: Job, options: Options) -> None:
    has = asdict(job.options)
    for name, value in asdict(options).items():
        if value is not None and value != has[name]:
            raise Error(f"{name}={value!r}: another recipe is open in a job with {name}={has[name]!r}; close it first")


def enter(options: Options, recipe: object) -> Job:
    """The current job, or a new one, with one recipe more."""
    global _current, _process
    if is_forked():
        raise Error("this process was forked from one that opened a recipe; num_workers=0: shardrt has its own threads")
    if _current is not None and not _current.recipes:  # they were collected, and not closed
        _current.leave()
    if _current is None:
        _process = os.getpid()
        _current = made = Job(options)  # before it is joined: Ctrl-C may come right after that
        try:
            _join(options)
        except BaseException:
            made.abandon()
            raise
    else:
        _check_options(_current, options)
    _current.recipes.add(recipe)
    return _current


@atexit.register
def _end() -> None:
    if _current is not None:
        _current.abandon()
