"""Transports: how the processes of a job gather what they compare, over what their program has already."""

from __future__ import annotations

import ctypes
import json
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from shardrt import errors, library

_PAUSES = 0.001, 0.05  # seconds between two looks for others: the first and the longest
_LOOK = 1.0  # seconds of a wait between two looks for what others told
_WORD = 2.0  # seconds that a word may come later than the failure which it explains, no more than the job's timeout


class Transport(ABC):
    """An all-gather of bytes among processes, for shardrt.open(…, transport=). shardrt.torch and shardrt.jax have one
    each; a program may bring its own. The thread that opens the recipe calls it, and it calls nothing of shardrt."""

    @abstractmethod
    def join(self, timeout: float) -> tuple[int, int]:
        """Finds the other processes in so many seconds, and returns this one's rank and how many there are."""

    @abstractmethod
    def start(self, mine: bytes) -> None:
        """Starts to gather `mine`, which is as long in every process. It does not wait. One gathering at a time is
        under way."""

    @abstractmethod
    def test(self) -> bytes | None:
        """What all processes gave, in the order of their ranks, one behind the other; None: not yet. It does not
        wait: shardrt decides for how long."""

    @abstractmethod
    def leave(self) -> None:
        """The job has ended, maybe with a gathering under way, which must not get into a later one. Waits for
        nobody."""

    def tell(self, word: str) -> bool:
        """This process is about to abandon the job, maybe with a gathering under way: leaves `word` for the others'
        `hear`, and waits for nobody. False, as here: it cannot. Then they learn it in the next gathering, to which this
        process gives a last time."""
        del word
        return False

    def hear(self) -> str | None:
        """What a process told when it abandoned the job; None: none did. Asked now and then while a gathering is under
        way; and when one fails, again and again for up to two seconds. It does not wait."""
        return None

    def missing(self) -> str | None:
        """What is known of who is missing, when a gathering took longer than the job's timeout: a sentence without its
        end, for the error. None, as here: nothing. It does not wait."""
        return None


class Calls:
    """A transport as the library calls it, until end(). What its functions raise ends the library's call, and is raised
    there. Ctrl-C may come where no handler stands yet, at the first step of a function that the library calls: ctypes
    then only reports it, to sys.unraisablehook."""

    def __init__(self, transport: Transport, timeout: float) -> None:
        self._transport = transport
        # A transport that cannot hear is not waited for.
        self._patience = min(_WORD, timeout) if type(transport).hear is not Transport.hear else 0.0
        self._all: int = 0  # where what is gathered goes
        self._look: float = 0  # when to listen again
        self._has_told = False
        # Memory that the library borrows as long as the job lasts.
        self.table = library.Transport(None, library.ALLGATHER_START(self._start), library.ALLGATHER_TEST(self._test))
        self._others = sys.unraisablehook
        sys.unraisablehook = self._catch
        errors.missing = transport.missing

    def tell(self, word: str) -> None:
        """Before the job is abandoned."""
        try:
            self._has_told = self._transport.tell(word)
        except Exception:  # what it tells by is gone: nor is anything else there
            self._has_told = True

    def end(self) -> None:
        errors.raised = errors.missing = None
        if sys.unraisablehook == self._catch:
            sys.unraisablehook = self._others
        self._transport.leave()

    def _start(self, _context: int, mine: int, size: int, everything: int) -> int:
        if self._has_told:
            return library.ECOMM
        self._all, self._look = everything, time.monotonic() + _LOOK
        return self._guard(lambda: self._transport.start(ctypes.string_at(mine, size)))

    def _test(self, _context: int, done: Any) -> int:
        def test() -> None:
            try:
                gathered = self._transport.test()
            except Exception:
                self._listen(self._patience)  # for what says more
                raise
            if gathered is not None:
                ctypes.memmove(self._all, gathered, len(gathered))
            elif time.monotonic() > self._look:
                self._listen()
            done[0] = gathered is not None

        return self._guard(test)

    def _listen(self, patience: float = 0) -> None:
        """Raises what a process told, if one did, or does within `patience` seconds."""
        until = time.monotonic() + patience
        while (word := self._transport.hear()) is None and time.monotonic() < until:
            time.sleep(_PAUSES[1])
        self._look = time.monotonic() + _LOOK
        if word is not None:
            raise errors.Left(word)

    def _guard(self, call: Callable[[], None]) -> int:
        try:
            if errors.raised is None:  # else something was caught below, and what the library was told then is chance
                call()
        except BaseException as problem:  # Ctrl-C, too
            errors.raised = problem
        return 0 if errors.raised is None else library.ECOMM

    def _is_ours(self, report: Any) -> bool:
        """From Python 3.13 on, a report names the function in its text only."""
        ours = (self._start, self._test)
        return report.object in ours or any(repr(function) in (report.err_msg or "") for function in ours)

    def _catch(self, report: Any) -> None:
        if self._is_ours(report):
            errors.raised = report.exc_value
        else:
            self._others(report)


_T = TypeVar("_T")


class Call(Generic[_T]):
    """A call on a thread of its own."""

    def __init__(self, what: Callable[[], _T]) -> None:
        self._what = what
        self._ended = threading.Event()
        self._value: list[_T] = []
        self._problem: BaseException | None = None
        self.begun = time.monotonic()

    def run(self) -> None:
        try:
            self._value.append(self._what())
        except BaseException as problem:
            self._problem = problem
        self._ended.set()

    def has_ended(self, seconds: float = 0) -> bool:
        """Whether it has, within so many seconds."""
        return self._ended.wait(seconds)

    def value(self) -> _T:
        """Of a call that has ended, once; or raises what it did."""
        if self._problem is not None:
            raise self._problem
        return self._value.pop()


class Aside:
    """Makes calls on a thread of its own, one after the other: they may take longer than whoever asks for them waits,
    or for ever. The process can end meanwhile."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Call[Any] | None] | None = None

    def begin(self, what: Callable[[], _T]) -> Call[_T]:
        call = Call(what)
        if self._calls is None:
            self._calls = SimpleQueue()
            threading.Thread(target=_run, args=(self._calls,), name="shardrt aside", daemon=True).start()
        self._calls.put(call)
        return call

    def end(self) -> None:
        """The thread ends after what was begun. Another may begin later."""
        if self._calls is not None:
            self._calls.put(None)
        self._calls = None


def _run(calls: SimpleQueue[Call[Any] | None]) -> None:
    while (call := calls.get()) is not None:
        call.run()
        del call  # this thread must not be the one to end what the call made: the process may be ending


class Store(Protocol):
    """Values by key, which all processes see. None of its functions waits for another process."""

    def add(self, key: str, count: int) -> int:
        """Adds to a number, which is 0 at first, and returns it. One process adds to it; the others add 0."""
        ...

    def set(self, key: str, value: bytes) -> None: ...

    def get(self, key: str) -> bytes:
        """Of a key that was set."""
        ...


def meet(store: Store, rank: int, size: int, timeout: float) -> int:
    """Waits until all processes are here, and returns the number of this meeting: the same in all, and of no other.

    Each counts how often it came. Process 0 waits until all have come since the last meeting, and writes the counts
    down. A process whose count is among them has met the others; one that gave up before and came again has not."""
    came = store.add(f"came/{rank}", 1)

    def last() -> tuple[int, list[int]]:
        return json.loads(store.get("met")) if store.add("meetings", 0) > 0 else (0, [0] * size)

    def counts() -> list[int]:
        return [store.add(f"came/{process}", 0) for process in range(size)]

    before, start = last(), time.monotonic()
    pause = _PAUSES[0]
    while True:
        if rank == 0:
            number, now = before[0] + 1, counts()
            if all(count > old for count, old in zip(now, before[1])):
                store.set("met", json.dumps((number, now)).encode())
                store.add("meetings", 1)
                return number
        else:
            number, met = last()
            if met[rank] == came:
                return number
        if time.monotonic() - start > timeout:
            missing = [p for p, (count, old) in enumerate(zip(counts(), last()[1])) if count <= old]
            raise _timeout(missing, size, timeout)
        time.sleep(pause)
        pause = min(2 * pause, _PAUSES[1])


def tell(store: Store, job: str, word: str) -> bool:
    """Transport.tell by keys below `job`: the first word stays."""
    if hear(store, job) is None:
        store.set(f"{job}/left", word.encode(errors="replace"))
        store.add(f"{job}/told", 1)
    return True


def hear(store: Store, job: str) -> str | None:
    """Transport.hear."""
    return store.get(f"{job}/left").decode() if store.add(f"{job}/told", 0) > 0 else None


def _timeout(missing: list[int], size: int, timeout: float) -> errors.Timeout:
    names = ", ".join(map(str, missing[:16])) + (", …" if len(missing) > 16 else "")
    who = f"process{'es' if len(missing) > 1 else ''} {names} of {size}" if missing else "process 0"
    return errors.Timeout(
        f"{who} did not come to shardrt.open within {timeout:g} seconds (stuck, cut off, or in need of a longer timeout=)",
        library.ETIMEOUT,
    )
