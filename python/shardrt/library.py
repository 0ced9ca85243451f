"""libshardrt: where it is, and the functions of shardrt.h that are called here."""

import ctypes
import os
from ctypes import CFUNCTYPE, POINTER, Structure, c_bool, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any, Callable

NAME = "libshardrt.so.0"
MAX_NDIM = 8
SLICE = 0.2  # seconds in the library, between which Ctrl-C is heard
EINVAL, ETIMEOUT, ECOMM, EAGAIN, ESTOP = -2, -7, -8, -11, -12


class Options(Structure):
    """shardrt_options."""

    _fields_ = [
        ("devices", c_int32),
        ("check", c_int32),
        ("transport", c_int32),
        ("planning", c_int32),
        ("rank", c_int32),
        ("size", c_int32),
        ("timeout", c_double),
        ("platform", c_char_p),
        ("handle_sigbus", c_int32),
        ("mpi_comm", c_void_p),
        ("callbacks", c_void_p),
        ("tells_stop", c_int32),
        ("slice", c_double),
        ("report", c_char_p),
        ("metrics", c_char_p),
    ]


ALLGATHER_START = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, c_void_p)
ALLGATHER_TEST = CFUNCTYPE(c_int, c_void_p, POINTER(c_bool))


class Transport(Structure):
    """shardrt_transport."""

    _fields_ = [("context", c_void_p), ("allgather_start", ALLGATHER_START), ("allgather_test", ALLGATHER_TEST)]


class JobInfo(Structure):
    """The beginning of shardrt_job_info."""

    _fields_ = [("process_index", c_int32), ("process_count", c_int32)]


class Box(Structure):
    """shardrt_box."""

    _fields_ = [("ndim", c_int32), ("start", c_int64 * MAX_NDIM), ("stop", c_int64 * MAX_NDIM)]


class ShardOf(Structure):
    """shardrt_shard."""

    _fields_ = [
        ("position", c_int64),
        ("device", c_int32),
        ("process", c_int32),
        ("replica_id", c_int64),
        ("block", c_int32),
        ("box", Box),
    ]


def _places() -> list[str]:
    """Where the library may be, the first of them first."""
    chosen = os.environ.get("SHARDRT_LIBRARY")
    if chosen:
        return [chosen]
    package = Path(__file__).resolve().parent
    beside = sorted(package.parent.glob("shardrt.libs/libshardrt*.so*"))  # of a wheel
    inside = [package / NAME, package.parent.parent / "build" / NAME]  # the last: of the tree
    return [str(path) for path in [*beside, *inside] if path.is_file()] + [NAME]


place = _places()[0]  # the library's file, or its name for the system to look up


def _load() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(place, mode=ctypes.RTLD_LOCAL)
    except OSError as problem:
        raise ImportError(f"shardrt: {problem}; SHARDRT_LIBRARY=/path/to/{NAME} says where it is") from problem


_library = _load()


def _function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    function = getattr(_library, name)
    function.restype, function.argtypes = result, arguments
    return function


_out = POINTER(c_void_p)  # of a handle

_version = _function("shardrt_version", c_char_p)
_error_name = _function("shardrt_error_name", c_char_p, c_int)
_error_message = _function("shardrt_error_message", c_char_p)

options_init = _function("shardrt_options_init", None, POINTER(Options))
join = _function("shardrt_join", c_int, POINTER(Options))
leave = _function("shardrt_leave", c_int)
abandon = _function("shardrt_abandon_because", None, c_char_p)
stop_ask = _function("shardrt_stop_ask", None)
joined = _function("shardrt_joined", c_void_p)
job_info = _function("shardrt_job_info_get", POINTER(JobInfo), c_void_p)

recipe_open = _function("shardrt_open", c_int, c_char_p, c_int, POINTER(c_char_p), _out)
recipe_loader = _function("shardrt_recipe_loader", c_int, c_void_p, c_char_p, _out)
recipe_count = _function("shardrt_recipe_count", c_int, c_void_p)
recipe_name = _function("shardrt_recipe_name", c_char_p, c_void_p, c_int)
recipe_next = _function("shardrt_next", c_int, c_void_p, c_double, _out)
recipe_steps = _function("shardrt_steps", c_int64, c_void_p)
recipe_tell = _function("shardrt_tell", c_int, c_void_p, POINTER(c_int64), POINTER(c_int64))
recipe_state = _function("shardrt_state", c_int, c_void_p, _out)
recipe_state_before = _function("shardrt_state_before", c_int, c_void_p, _out)
recipe_stats = _function("shardrt_stats", c_int, c_void_p, _out)
recipe_restore = _function("shardrt_restore", c_int, c_void_p, c_char_p)
recipe_close = _function("shardrt_close", None, c_void_p)
text_free = _function("shardrt_text_free", None, c_void_p)

batch_free = _function("shardrt_batch_free", None, c_void_p)
batch_fields = _function("shardrt_batch_fields", c_int, c_void_p)
batch_name = _function("shardrt_batch_name", c_char_p, c_void_p, c_int)
batch_find = _function("shardrt_batch_find", c_void_p, c_void_p, c_char_p)

array_dtype = _function("shardrt_array_dtype", c_int32, c_void_p)
array_ndim = _function("shardrt_array_ndim", c_int32, c_void_p)
array_shape = _function("shardrt_array_shape", POINTER(c_int64), c_void_p)
array_sharding = _function("shardrt_array_sharding", c_void_p, c_void_p)
array_layout = _function("shardrt_array_layout", ctypes.c_uint64, c_void_p)
array_shard_count = _function("shardrt_array_shard_count", c_int64, c_void_p)
array_shard = _function("shardrt_array_shard", POINTER(ShardOf), c_void_p, c_int64)
array_buffer = _function("shardrt_array_buffer", c_void_p, c_void_p, c_int64)
array_host_data = _function("shardrt_array_host_data", c_void_p, c_void_p, c_int64)
array_gather = _function("shardrt_array_gather", c_int, c_void_p, c_void_p)
array_dlpack = _function("shardrt_array_dlpack", c_int, c_void_p, c_int64, c_void_p, _out)
array_dlpack_legacy = _function("shardrt_array_dlpack_legacy", c_int, c_void_p, c_int64, c_void_p, _out)
dlpack_python = _function("shardrt_dlpack_python", None, c_void_p, c_void_p)
dlpack_capsule_free = ctypes.cast(_library.shardrt_dlpack_capsule_free, c_void_p)  # which Python calls by itself
sharding_text = _function("shardrt_sharding_text", c_char_p, c_void_p)
buffer_host = _function("shardrt_buffer_host", c_int, c_void_p, _out)
dtype_name = _function("shardrt_dtype_name", c_char_p, c_int32)
dtype_size = _function("shardrt_dtype_size", c_size_t, c_int32)


def in_slices(function: Callable[..., int], *arguments: Any) -> int:
    """Calls it until it has ended. Ctrl-C leaves it between two slices."""
    while (code := function(*arguments)) == EAGAIN:
        pass
    return code


def version() -> str:
    return _version().decode()


def name_of_error(code: int) -> str:
    return _error_name(code).decode()


def message_of_error() -> str:
    return _error_message().decode(errors="replace")
