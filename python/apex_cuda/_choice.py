"""Decides by measurements whether a kernel of `apex_cuda.kernels` replaces PyTorch's function.

A kernel ("ours") is chosen for a call if three conditions hold:

- the length was measured, lies between two measured lengths, or is beyond the longest one, and at
  each of these ours took no longer than PyTorch's fastest function (with gradients: both passes
  together);
- this device and this type were measured (`_patch` checks that);
- ours keeps the GPU busy for at least as long as the host takes to issue the call. A shorter call
  waits for the host, and our calls take more host time than PyTorch's.
"""

from typing import Optional

from . import _measured
from ._measured import Row

_ROWS = {"rms_norm": _measured.RMS_NORM, "softmax": _measured.SOFTMAX}


def least_elements(kind: str) -> int:
    """Minimum number of elements, of the tensor or of the queries, for a call to be ours.

    With fewer, the host takes longer to issue it than the GPU takes even at the slowest rate.
    """
    if kind == "attention":
        rows, elements = sum(_measured.ATTENTION.values(), []), _measured.ATTENTION_ELEMENTS
    else:
        rows, elements = _ROWS[kind], _measured.ROW_ELEMENTS
    return int(elements * _measured.HOST_US[kind][0] / max(row[1] for row in rows))


def of_rows(kind: str, length: int, elements: int, gradients: bool) -> Optional[str]:
    """Why a norm or softmax of rows of this length is not ours; None if it is.

    Args:
        kind: ``"rms_norm"`` or ``"softmax"``.
        elements: of the whole tensor.
        gradients: whether a backward pass follows.
    """
    return _choose(kind, _ROWS[kind], length, elements / _measured.ROW_ELEMENTS, gradients)


def of_attention(
    dim: int, causal: bool, length: int, elements: int, gradients: bool
) -> Optional[str]:
    """The same for attention of so many queries as keys, with so many elements of queries."""
    rows = _measured.ATTENTION.get((dim, causal), [])
    return _choose("attention", rows, length, elements / _measured.ATTENTION_ELEMENTS, gradients)


def _choose(
    kind: str, rows: list[Row], length: int, share: float, gradients: bool
) -> Optional[str]:
    near = _around(rows, length)
    if not near:
        shortest = rows[0][0] if rows else "any length"
        return f"no measurement of length {length}: the shortest is {shortest}"
    times = [_times(row, gradients) for row in near]
    measured = [both for both in times if both is not None]
    if len(measured) < len(near):
        return f"its gradients were not measured at length {length}"
    slower = next(((ours, peer) for ours, peer in measured if ours > peer), None)
    if slower is not None:
        ours, peer = slower
        return f"measured slower near length {length}: {ours:.0f} µs, PyTorch {peer:.0f} µs"
    forward, wanted, backward = _measured.HOST_US[kind]
    host = wanted + backward if gradients else forward
    busy = min(ours for ours, _ in measured) * share
    if busy < host:
        return f"too small: {busy:.0f} µs of the GPU (predicted), {host:.0f} µs of the host"
    return None


def _around(rows: list[Row], length: int) -> list[Row]:
    """The measured row of this length, or those on both sides of it; none below the shortest."""
    below = [row for row in rows if row[0] <= length]
    above = [row for row in rows if row[0] > length]
    exact = bool(below) and below[-1][0] == length
    return below[-1:] + (above[:1] if below and not exact else [])


def _times(row: Row, gradients: bool) -> Optional[tuple[float, float]]:
    """µs of ours and of PyTorch's, of both passes if gradients follow."""
    _, ours, peer, ours_backward, peer_backward = row
    if not gradients:
        return ours, peer
    if ours_backward is None or peer_backward is None:
        return None
    return ours + ours_backward, peer + peer_backward
