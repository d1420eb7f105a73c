"""Tensors of any library, through DLPack, without a copy.

An object that exports ``__dlpack__`` and ``__dlpack_device__`` (the Python array API) gives a
capsule with a C structure that says where its elements lie. The capsule keeps the memory alive;
it is held during the call alone, and deletes the structure when it goes. PyTorch's tensors on their
current stream, which need no capsule to be ordered, are asked directly: that takes a tenth of the
time.
"""

import ctypes
import functools
import math
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

from ._interface import ELEMENTS

_CUDA, _CUDA_MANAGED = 2, 13
"""Devices of DLPack whose memory the GPU reads."""
_READ_ONLY, _IS_COPIED = 1, 2
"""Flags of DLPack."""
_TYPES = {(4, 16): "bfloat16", (2, 16): "float16", (2, 32): "float32", (0, 32): "int32"}
"""Names of types by DLPack's code and bits."""


class _Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [
        ("tensor", _Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


class _ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("version", _Version),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_is_named = ctypes.pythonapi.PyCapsule_IsValid
_is_named.argtypes, _is_named.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_int
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.argtypes, _pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p


class Tensor(NamedTuple):
    """A contiguous tensor of a device, as long as the capsule lives."""

    name: str
    address: int
    shape: tuple[int, ...]
    dtype: str
    device: int
    capsule: Any

    @property
    def operand(self) -> tuple[int, int, int]:
        """As the C interface takes it."""
        return self.address, math.prod(self.shape), ELEMENTS[self.dtype]


def borrow(name: str, tensor: Any, stream: int, written: bool = False) -> Tensor:
    """What a tensor says of itself.

    Args:
        name: what errors call it.
        stream: the handle of the stream that will use it; its owner lets it wait for its own work.
        written: whether it is an output.

    Raises:
        TypeError: it is no tensor of a CUDA device, or has elements that no kernel takes.
        ValueError: it is not contiguous, or an output cannot be written to.
    """
    known = _of_torch(name, tensor, stream)
    if known is not None:
        return known
    if not hasattr(tensor, "__dlpack__") or not hasattr(tensor, "__dlpack_device__"):
        raise TypeError(f"{name} is a {type(tensor).__name__}, which does not export DLPack")
    device_type, device = tensor.__dlpack_device__()
    if device_type not in (_CUDA, _CUDA_MANAGED):
        raise TypeError(f"{name} is not on a CUDA device: its DLPack device type is {device_type}")
    # DLPack has 1 for the legacy default stream, and no stream 0.
    order = stream or 1
    try:
        capsule = tensor.__dlpack__(stream=order, max_version=(1, 0))
    except TypeError:  # from before version 1
        capsule = tensor.__dlpack__(stream=order)
    content, flags = _content(name, capsule)
    if written and flags & (_READ_ONLY | _IS_COPIED):
        why = "read-only" if flags & _READ_ONLY else "exported as a copy"
        raise ValueError(f"{name} is written to, and it is {why}")
    dtype = _TYPES.get((content.code, content.bits))
    if dtype is None or content.lanes != 1:
        raise TypeError(
            f"{name} has elements that no kernel takes (DLPack code {content.code}, "
            f"{content.bits} bits); they must be {', '.join(ELEMENTS)}"
        )
    shape = tuple(content.shape[: content.ndim])
    if content.strides:
        _check_contiguous(name, shape, content.strides[: content.ndim])
    address = (content.data or 0) + content.byte_offset
    return Tensor(name, address, shape, dtype, int(device), capsule)


def _of_torch(name: str, tensor: Any, stream: int) -> Optional[Tensor]:
    """What PyTorch's tensor says, if there is nothing to refuse or to order."""
    torch = sys.modules.get("torch")
    if torch is None or type(tensor) is not torch.Tensor or not tensor.is_cuda:
        return None
    device = tensor.get_device()
    if tensor.requires_grad or not tensor.is_contiguous() or stream != torch_stream(device):
        return None
    dtype = _torch_types().get(tensor.dtype)
    if dtype is None:
        return None
    return Tensor(name, tensor.data_ptr(), tensor.shape, dtype, device, tensor)


@functools.cache
def _torch_types() -> dict[Any, str]:
    torch = sys.modules["torch"]
    return {getattr(torch, name): name for name in ELEMENTS}


def torch_stream(device: int) -> int:
    """The handle of PyTorch's current stream of a device."""
    handle: int = sys.modules["torch"]._C._cuda_getCurrentRawStream(device)
    return handle


def _content(name: str, capsule: Any) -> tuple[_Tensor, int]:
    """The structure of a capsule, and its flags."""
    if _is_named(capsule, b"dltensor_versioned"):
        address = _pointer(capsule, b"dltensor_versioned")
        managed = _ManagedVersioned.from_address(address)
        if managed.version.major != 1:
            raise TypeError(f"{name} exports version {managed.version.major} of DLPack, not 1")
        return managed.tensor, managed.flags
    if _is_named(capsule, b"dltensor"):
        return _Managed.from_address(_pointer(capsule, b"dltensor")).tensor, 0
    raise TypeError(f"{name}.__dlpack__() did not return a DLPack capsule")


def _check_contiguous(name: str, shape: tuple[int, ...], strides: Sequence[int]) -> None:
    if 0 in shape:
        return
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size > 1 and stride != expected:
            raise ValueError(
                f"{name} is not contiguous: shape {shape}, strides {tuple(strides)}; "
                "pass a contiguous copy"
            )
        expected *= size


def stream_handle(stream: Any, tensor: Any) -> int:
    """The handle of a stream: an integer, a stream of PyTorch, CuPy or ``cuda.core``; without one,
    the current stream of the library that the tensor is of, if it is PyTorch or CuPy, else the
    legacy default stream.

    Raises:
        TypeError: it is no stream.
    """
    if isinstance(stream, int):
        return stream
    if stream is None:
        library = type(tensor).__module__.partition(".")[0]
        if library == "torch":
            return torch_stream(tensor.get_device()) if tensor.is_cuda else 0
        if library == "cupy":
            return int(sys.modules["cupy"].cuda.get_current_stream().ptr)
        return 0
    for attribute in ("cuda_stream", "ptr"):
        handle = getattr(stream, attribute, None)
        if isinstance(handle, int):
            return handle
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    raise TypeError(
        f"stream is a {type(stream).__name__}; pass a handle, or a stream of PyTorch, CuPy or "
        "cuda.core"
    )
