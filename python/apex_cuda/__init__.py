"""APEX from Python: read sessions, steer recording, name ranges.

``python -m apex_cuda run train.py`` records a program; ``apex_cuda.Session(path)`` reads what was
recorded; ``with apex_cuda.record():`` records a part of a running program;
``apex_cuda.range(name)`` names a part of it; ``apex_cuda.patch(model)`` gives a PyTorch model the
kernels of ``apex_cuda.kernels`` where they are faster. ``%load_ext apex_cuda`` gives notebooks
``%%apex``, ``apex_cuda.callbacks`` trainers a callback, and ``apex_cuda.log`` writes what was found
into TensorBoard, MLflow and Weights & Biases. Nothing is imported beyond the standard library until
a method needs it.
"""

from typing import TYPE_CHECKING, Any

from . import _command
from ._command import Error
from ._ranges import range
from ._recording import NotRecorded, is_loaded, record
from ._session import Session
from ._steps import Steps

if TYPE_CHECKING:
    from ._patch import patch, unpatch

__all__ = [
    "Error",
    "NotRecorded",
    "Session",
    "Steps",
    "__version__",
    "is_loaded",
    "patch",
    "range",
    "record",
    "unpatch",
]


def __getattr__(name: str) -> Any:
    """``__version__``, which is looked up only where somebody asks for it, and what needs PyTorch."""
    if name == "__version__":
        return _command.version()
    if name in ("patch", "unpatch"):
        from . import _patch

        return getattr(_patch, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext apex_cuda``: adds ``%%apex``."""
    from ._notebook import register

    register(shell)
