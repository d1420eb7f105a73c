"""The C interface of ``libapex_kernels_c.so`` (``crates/kernels-c``), called by ctypes.

The library is opened at the first call. It uses the driver that the process has loaded.
"""

import ctypes
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

from .. import _command

NAME = "libapex_kernels_c.so"
VERSION = 1
"""Version of the interface that this module speaks."""

ELEMENTS = {"bfloat16": 1, "float16": 2, "float32": 3}
"""Types of elements, and their numbers in the interface."""

_INVALID = -1
_MESSAGE_BYTES = 2048


class Error(RuntimeError):
    """The library is missing, or the device or its driver refused or failed."""


class Operand(NamedTuple):
    """A contiguous tensor of the device."""

    address: int
    elements: int
    element: int


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("address", ctypes.c_uint64),
        ("elements", ctypes.c_uint64),
        ("element", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class _Call(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint32),
        ("device", ctypes.c_int32),
        ("stream", ctypes.c_void_p),
        ("tensors", ctypes.POINTER(_Tensor)),
        ("tensor_count", ctypes.c_size_t),
        ("integers", ctypes.POINTER(ctypes.c_int64)),
        ("integer_count", ctypes.c_size_t),
        ("numbers", ctypes.POINTER(ctypes.c_double)),
        ("number_count", ctypes.c_size_t),
        ("workspace", ctypes.c_uint64),
        ("workspace_bytes", ctypes.c_uint64),
    ]


def run(
    operation: str,
    device: int,
    stream: int,
    operands: Sequence[Operand],
    integers: Sequence[int],
    numbers: Sequence[float],
    workspace: Optional[tuple[int, int]] = None,
) -> int:
    """Runs an operation; returns the number of the form that ran.

    Args:
        stream: handle of the stream; 0 is the legacy default stream.
        workspace: address and bytes of memory as `workspace_bytes` says; without it the library
            takes memory from the driver's pool, and gives it back, in the order of the stream.

    Raises:
        ValueError: an argument is wrong.
        Error: the device or its driver refused or failed.
    """
    call = _call(device, stream, operands, integers, numbers, workspace)
    message = ctypes.create_string_buffer(_MESSAGE_BYTES)
    code: int = _library().apex_kernels_run(
        operation.encode(), ctypes.byref(call), message, _MESSAGE_BYTES
    )
    _check(code, message.value)
    return code


def workspace_bytes(
    operation: str,
    device: int,
    operands: int,
    integers: Sequence[int],
    numbers: Sequence[float],
) -> int:
    """Bytes of the workspace of an operation on so many operands.

    Raises:
        ValueError: an argument is wrong.
        Error: there is no such device.
    """
    call = _call(device, 0, [Operand(0, 0, 0)] * operands, integers, numbers, None)
    message = ctypes.create_string_buffer(_MESSAGE_BYTES)
    found = ctypes.c_uint64()
    code = _library().apex_kernels_workspace(
        operation.encode(), ctypes.byref(call), ctypes.byref(found), message, _MESSAGE_BYTES
    )
    _check(code, message.value)
    return found.value


def _call(
    device: int,
    stream: int,
    operands: Sequence[Operand],
    integers: Sequence[int],
    numbers: Sequence[float],
    workspace: Optional[tuple[int, int]],
) -> _Call:
    address, size = workspace or (0, 0)
    return _Call(
        version=VERSION,
        device=device,
        stream=stream,
        tensors=(_Tensor * len(operands))(*(_Tensor(*operand, 0) for operand in operands)),
        tensor_count=len(operands),
        integers=(ctypes.c_int64 * len(integers))(*integers),
        integer_count=len(integers),
        numbers=(ctypes.c_double * len(numbers))(*numbers),
        number_count=len(numbers),
        workspace=address,
        workspace_bytes=size,
    )


def _check(code: int, message: bytes) -> None:
    if code >= 0:
        return
    text = message.decode(errors="replace")
    raise ValueError(text) if code == _INVALID else Error(text)


_opened: Any = None
_opening = threading.Lock()


def _library() -> Any:
    global _opened
    if _opened is None:
        with _opening:
            if _opened is None:
                _opened = _open()
    return _opened


def _open() -> Any:
    candidates = list(_candidates())
    path = next((path for path in candidates if path.is_file()), None)
    if path is None:
        folders = ", ".join(str(path.parent) for path in candidates)
        raise Error(
            f"{NAME} was not found; looked in: {folders}. `pip install apex-cuda` installs it; in "
            "a checkout `cargo build --release -p apex-kernels-c` makes it, and APEX_LIB_DIR names "
            "its folder"
        )
    library = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    library.apex_kernels_version.restype = ctypes.c_uint32
    version = library.apex_kernels_version()
    if version != VERSION:
        raise Error(
            f"{path} has version {version} of its interface, and this apex_cuda needs {VERSION}; "
            "install both from one release"
        )
    text, size = ctypes.c_char_p, ctypes.c_size_t
    library.apex_kernels_run.argtypes = [text, ctypes.POINTER(_Call), text, size]
    library.apex_kernels_workspace.argtypes = [
        text,
        ctypes.POINTER(_Call),
        ctypes.POINTER(ctypes.c_uint64),
        text,
        size,
    ]
    return library


def _candidates() -> Iterator[Path]:
    """Where the library may lie: where it is said to be, else in this package, or where cargo puts
    it beside the command."""
    named = os.environ.get("APEX_LIB_DIR")
    if named:
        yield Path(named) / NAME
        return
    yield Path(__file__).parent / NAME
    try:
        beside = Path(_command.find()).resolve().parent
    except _command.Error:
        return
    yield beside / NAME
    yield beside / "deps" / NAME
