"""What shardrt raises: the code and the message of the library's functions."""

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


class OutOfMemory(Error, MemoryError):
    pass


class Overflow(Error, OverflowError):
    pass


class FileError(Error, OSError):
    pass


class FormatError(Error, ValueError):
    pass


class Timeout(Error, TimeoutError):
    """Another process did not come in the job's timeout."""


class CommunicationError(Error, ConnectionError):
    pass


class UnknownLoader(Error, KeyError):
    pass


_CLASSES: dict[str, type[Error]] = {
    "ENOMEM": OutOfMemory,
    "EOVERFLOW": Overflow,
    "EIO": FileError,
    "EFORMAT": FormatError,
    "ETIMEOUT": Timeout,
    "ECOMM": CommunicationError,
}


class Left(Exception):
    """Another process abandoned the job, and says so in this text; raised in a transport's function."""


# What a transport's function raised, until the call of the library that it ended is known to have failed.
raised: BaseException | None = None


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
    error = _CLASSES.get(library.name_of_error(code), Error)(message, code)
    error.__cause__ = cause
    return error


def check(code: int) -> int:
    """`code` as it is, unless it tells of a failure."""
    if code < 0:
        raise failure(code)
    return code
