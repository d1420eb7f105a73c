"""The C interface of ``libapex_kernels_c.so`` (``crates/kernels/kernels-c``), called by ctypes.

The library is opened at the first call. It uses the driver that the process has loaded.
"""

import ctypes
import functools
import os
import struct
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .. import _command

NAME = "libapex_kernels_c.so"
VERSION = 5
"""Version of the interface that this module speaks."""

ELEMENTS = {"bfloat16": 1, "float16": 2, "float32": 3, "int32": 4}
"""Types of elements, and their numbers in the interface."""

_INVALID = -1
_MESSAGE_BYTES = 2048


class Error(RuntimeError):
    """The library is missing, or the device or its driver refused or failed."""


def run(
    operation: str,
    device: int,
    stream: int,
    operands: Sequence[int],
    integers: Sequence[int],
    numbers: Sequence[float],
    workspace: int = 0,
    workspace_bytes: int = 0,
) -> int:
    """Runs an operation; returns the number of the form that ran.

    Args:
        stream: handle of the stream; 0 is the legacy default stream.
        operands: of each contiguous tensor the address, the number of elements, and that of their
            type in `ELEMENTS`, one after another.
        workspace: address of memory, `workspace_bytes` of it, as much as `plan` says; 0: the
            library takes memory from the driver's pool, and gives it back, in the order of the
            stream.

    Raises:
        ValueError: an argument is wrong.
        Error: the device or its driver refused or failed.
    """
    call = _call(device, stream, operands, integers, numbers, workspace, workspace_bytes)
    code: int = (_opened or _library()).apex_kernels_run(operation.encode(), call)
    if code < 0:
        raise _failure(code)
    return code


def plan(
    operation: str,
    device: int,
    operands: int,
    integers: Sequence[int],
    numbers: Sequence[float],
) -> tuple[int, int]:
    """Bytes of the workspace of an operation on so many operands, and the form that would run.

    Raises:
        ValueError: an argument is wrong.
        Error: there is no such device.
    """
    call = _call(device, 0, (0, 0, 0) * operands, integers, numbers, 0, 0)
    found = ctypes.c_uint64()
    library = _opened or _library()
    code = library.apex_kernels_plan(operation.encode(), call, ctypes.byref(found))
    if code < 0:
        raise _failure(code)
    return found.value, code


@functools.cache
def _packer(operands: int, integers: int, numbers: int) -> struct.Struct:
    """What writes a call of so many values: `Header` of `crates/kernels/kernels-c`, and what follows it."""
    return struct.Struct(f"=IiQQQIIII{operands}Q{integers}q{numbers}d")


def _call(
    device: int,
    stream: int,
    operands: Sequence[int],
    integers: Sequence[int],
    numbers: Sequence[float],
    workspace: int,
    workspace_bytes: int,
) -> bytes:
    """A call as the interface reads it. CPython aligns the content of `bytes` to 8 of them."""
    counts = (len(operands), len(integers), len(numbers))
    head = (VERSION, device, stream, workspace, workspace_bytes, counts[0] // 3, *counts[1:], 0)
    try:
        return _packer(*counts).pack(*head, *operands, *integers, *numbers)
    except struct.error as error:
        raise ValueError(f"an argument is no number of 64 bits: {error}") from None


def _failure(code: int) -> Exception:
    """What went wrong in the last call of this thread."""
    message = ctypes.create_string_buffer(_MESSAGE_BYTES)
    _library().apex_kernels_message(message, _MESSAGE_BYTES)
    text = message.value.decode(errors="replace")
    return ValueError(text) if code == _INVALID else Error(text)


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
    text, number = ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint64)
    library.apex_kernels_run.argtypes = [text, text]
    library.apex_kernels_plan.argtypes = [text, text, number]
    library.apex_kernels_message.argtypes = [text, ctypes.c_size_t]
    library.apex_kernels_message.restype = None
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
