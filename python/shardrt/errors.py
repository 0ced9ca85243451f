"""What shardrt raises: the code and the message of the library's functions, as classes that are Python's own, too."""

from __future__ import annotations

from collections.abc import Callable
from errno import EACCES, EISDIR, ENOENT

from shardrt import library


class Error(Exception):
    """A function of the library failed. The message of a recipe's error begins with its file and line."""

    code: int  # SHARDRT_EINVAL, …: below 0
    name: str  # "EINVAL", …

    def __init__(self, message: str, code: int = library.EINVAL) -> None:
        super().__init__(message)
        self.code = code
        self.name = library.name_of_error(code)

    def __str__(self) -> str:
        return str(self.args[0])


class Invalid(Error, ValueError):
    pass


class OutOfMemory(Error, MemoryError):
    pass


class Overflow(Error, OverflowError):
    pass


class FileError(Error, OSError):
    pass


class NotFound(FileError, FileNotFoundError):
    errno = ENOENT


class NotPermitted(FileError, PermissionError):
    errno = EACCES


class IsFolder(FileError, IsADirectoryError):
    errno = EISDIR


class FormatError(Error, ValueError):
    pass


class Timeout(Error, TimeoutError):
    """Another process did not come in the job's timeout."""


class CommunicationError(Error, ConnectionError):
    pass


class Stopped(Error):
    """A process was asked to end the job. All are told so before the same batch, once; the loop can go on."""


class Mismatch(Error, RuntimeError):
    """Processes, or replicas, are not alike."""


class NoData(Error, RuntimeError):
    """Another process has what was asked for."""


class DeviceError(Error, RuntimeError):
    pass


class UnknownLoader(Invalid, KeyError):
    pass


_CLASSES: dict[str, type[Error]] = {
    "EINVAL": Invalid,
    "ENOMEM": OutOfMemory,
    "EOVERFLOW": Overflow,
    "EIO": FileError,
    "EFORMAT": FormatError,
    "ETIMEOUT": Timeout,
    "ECOMM": CommunicationError,
    "ESTOP": Stopped,
    "EMISMATCH": Mismatch,
    "EDATA": NoData,
    "EDEVICE": DeviceError,
}

# One code stands for all that befalls files: what it was is in the message, in the system's words (the library's are English) or a server's answer,
# also where another process had to do with the file.
_REASONS: list[tuple[str, type[FileError]]] = [
    ("No such file or directory", NotFound),
    ("Permission denied", NotPermitted),
    ("Operation not permitted", NotPermitted),
    ("Is a directory", IsFolder),
    ("the server answers 404", NotFound),
    ("the server answers 401", NotPermitted),
    ("the server answers 403", NotPermitted),
]


def error_of(code: int, message: str) -> Error:
    """The error that a code and a message are in Python."""
    kind = _CLASSES.get(library.name_of_error(code), Error)
    if kind is FileError:
        kind = next((one for words, one in _REASONS if words in message), kind)
    return kind(message, code)


class Left(Exception):
    """Another process abandoned the job, and says so in this text; raised in a transport's function."""


# What a transport's function raised, until the call of the library that it ended is known to have failed.
raised: BaseException | None = None


# Says who is missing, as far as the job's transport knows.
missing: Callable[[], str | None] | None = None


def failure(code: int) -> BaseException:
    """The error of the library's last call on this thread, which returned `code`; or what interrupted that."""
    global raised
    message, cause = library.message_of_error(), raised
    raised = None
    if cause is not None and not isinstance(cause, Exception):
        return cause  # Ctrl-C
    if isinstance(cause, Left):
        return CommunicationError(str(cause), code)
    if cause is not None:
        message = f"{message}: {type(cause).__name__}: {str(cause).partition(chr(10))[0]}"
    who = missing() if missing is not None and code == library.ETIMEOUT else None
    error = error_of(code, f"{message}\n  {who}" if who else message)
    error.__cause__ = cause
    return error


def check(code: int) -> int:
    """`code` as it is, unless it tells of a failure."""
    if code < 0:
        raise failure(code)
    return code
