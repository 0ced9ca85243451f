"""The job of this process while recipes are open: joined with the first, left with the last."""

import atexit
import ctypes
import os
import signal
import sys
import threading
import traceback
import weakref
from dataclasses import dataclass, fields
from typing import Any

from shardrt import library
from shardrt.errors import Error, Invalid, check, error_of
from shardrt.transport import Calls, Transport

_TRANSPORTS = {"auto": 0, "alone": 1}  # SHARDRT_TRANSPORT_…
_CALLBACKS = 3


@dataclass(frozen=True)
class Options:
    """How a job is joined; None: as the library chooses, or as the job that is joined has it."""

    devices: int | None = None
    timeout: float | None = None
    platform: str | None = None
    transport: str | Transport | None = None
    handle_sigbus: bool | None = None
    stop_signals: tuple[int, ...] | None = None
    report: str | None = None
    metrics: str | None = None


class Job:
    """A job that is joined, until it is left."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.recipes: weakref.WeakSet[object] = weakref.WeakSet()  # that are open
        self.thread = threading.get_ident()  # which joins it, and makes all its calls
        self.calls: Calls | None = None  # of a transport, made as long as it lasts,
        self.rank = 0  # which gave this one
        self.handlers: dict[int, Any] = {}  # that its signals had before

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
        try:
            code = library.in_slices(library.leave)
        except BaseException as problem:  # Ctrl-C
            self.abandon(problem)
            raise
        if code == library.EINVAL:
            check(code)
        _forget(self)
        try:
            check(code)
        except BaseException as problem:
            self._tell(problem)
            raise
        finally:
            self._end()

    def abandon(self, problem: BaseException | None = None) -> None:
        """Waits for nobody, and tells the others because of which problem; on another thread than the one that joined
        it does nothing."""
        if self.is_elsewhere() or not _forget(self):
            return
        why = ""
        try:
            why = self._tell(problem)
        finally:  # Ctrl-C while it tells
            library.abandon(why.encode(errors="replace") or None)
            self._end()

    def _tell(self, problem: BaseException | None) -> str:
        why = ""
        if problem is not None and not isinstance(problem, GeneratorExit):  # a loop that nobody goes on with
            why = "".join(traceback.format_exception_only(problem)).strip().partition("\n")[0]
        if self.calls is not None:
            self.calls.tell(f"process {self.rank} left the job (abandoned it)" + (why and f", because of: {why}"))
        return why

    def hear(self) -> None:
        """From now on its signals ask for an orderly end."""
        for number in self.options.stop_signals or ():
            self.handlers[number] = signal.signal(number, _ask_stop)

    def _end(self) -> None:
        if self.calls is not None:
            self.calls.end()
        for number, handler in self.handlers.items():
            if handler is not None and signal.getsignal(number) is _ask_stop:
                signal.signal(number, handler)

    def release(self, recipe: object) -> None:
        """One recipe less; with the last one the job is left."""
        self.recipes.discard(recipe)
        if not self.recipes:
            self.leave()

    def give_up(self, recipe: object, problem: BaseException) -> None:
        """One recipe less, by an error; with the last one the job is abandoned, and with all of them where what is
        no error of the library's (Ctrl-C, a signal's handler that raises) left a call that others may wait in."""
        self.recipes.discard(recipe)
        if not self.recipes or not isinstance(problem, Error):
            self.abandon(problem)


def _ask_stop(_number: int, _frame: object) -> None:
    library.stop_ask()


_current: Job | None = None
_process: int | None = None  # which joined: the library's threads are in no other


def _join(job: Job) -> None:
    options = job.options
    wanted = library.Options()
    library.options_init(ctypes.byref(wanted))
    if options.devices is not None:
        wanted.devices = options.devices
    if options.timeout is not None:
        wanted.timeout = options.timeout
    if options.platform is not None:
        wanted.platform = options.platform.encode()
    wanted.handle_sigbus = bool(options.handle_sigbus)
    wanted.tells_stop = options.stop_signals is not None
    wanted.slice = library.SLICE
    if options.report is not None:
        wanted.report = os.fsencode(options.report)
    if options.metrics is not None:
        wanted.metrics = os.fsencode(options.metrics)
    transport = options.transport or "auto"
    if not isinstance(transport, Transport):
        if transport not in _TRANSPORTS:
            raise Invalid(
                'transport is "auto" or "alone", shardrt.torch.transport(), shardrt.jax.transport() or another '
                f"shardrt.Transport, not {transport!r}"
            )
        wanted.transport = _TRANSPORTS[transport]
        check(library.in_slices(library.join, ctypes.byref(wanted)))
        if transport == "auto":
            _check_others()
        return
    wanted.rank, wanted.size = transport.join(wanted.timeout)
    job.rank = wanted.rank
    job.calls = calls = Calls(transport, wanted.timeout)
    wanted.transport = _CALLBACKS
    wanted.callbacks = ctypes.cast(ctypes.pointer(calls.table), ctypes.c_void_p)
    check(library.in_slices(library.join, ctypes.byref(wanted)))


def _others() -> tuple[str, int]:
    """How many processes the program's own torch.distributed or JAX has, and which of them."""
    torch: Any = sys.modules.get("torch.distributed")
    if torch is not None and torch.is_available() and torch.is_initialized() and torch.get_world_size() > 1:
        return "torch", torch.get_world_size()
    jax: Any = sys.modules.get("jax._src.distributed")
    return "jax", (jax.global_state.num_processes or 1 if jax is not None else 1)


def _check_others() -> None:
    """A job of one process, in a program of several, would give each of them the same rows."""
    name, count = _others()
    if count > 1 and library.job_info(library.joined()).contents.process_count == 1:
        library.abandon(None)
        raise error_of(
            library.ECOMM,
            f"{name}.distributed has {count} processes, but shardrt finds this one alone; use shardrt.open(…, "
            f'transport=shardrt.{name}.transport()), or transport="alone" for all rows in each',
        )


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
    for name in (field.name for field in fields(options)):
        value, has = getattr(options, name), getattr(job.options, name)
        if value is not None and value != has:
            raise Invalid(f"{name}={value!r}: another recipe is open in a job with {name}={has!r}; close it first")


def enter(options: Options, recipe: object) -> Job:
    """The current job, or a new one, with one recipe more."""
    global _current, _process
    if is_forked():
        raise Invalid("this process was forked from one that opened a recipe; num_workers=0: shardrt has its own threads")
    if _current is not None and not _current.recipes:  # they were collected, and not closed
        _current.leave()
    if _current is None:
        _process = os.getpid()
        _current = made = Job(options)  # before it is joined: Ctrl-C may come right after that
        try:
            made.hear()
            _join(made)
        except BaseException as problem:
            made.abandon(problem)
            raise
    else:
        _check_options(_current, options)
    _current.recipes.add(recipe)
    return _current


@atexit.register
def _end() -> None:
    if _current is not None:
        _current.abandon(getattr(sys, "last_value", None))  # what ended the program
