"""APEX from Python: read sessions, steer recording, name ranges.

``python -m apex_cuda run train.py`` records a program; ``apex_cuda.Session(path)`` reads what was
recorded; ``with apex_cuda.record():`` records a part of a running program;
``apex_cuda.range(name)`` names a part of it; ``apex_cuda.patch(model)`` gives a PyTorch model the
kernels of ``apex_cuda.kernels`` where they are faster; ``apex_cuda.tune(space, measure)`` searches
declared parameters. ``%load_ext apex_cuda`` gives notebooks
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
    from ._tune import Invalid, Tuned, time_on_gpu, tune

__all__ = [
    "Error",
    "Invalid",
    "NotRecorded",
    "Session",
    "Steps",
    "Tuned",
    "__version__",
    "is_loaded",
    "patch",
    "range",
    "record",
    "time_on_gpu",
    "tune",
    "unpatch",
]


def __getattr__(name: str) -> Any:
    """What is looked up only where somebody asks for it, so that an import stays short."""
    if name == "__version__":
        return _command.version()
    if name in ("patch", "unpatch"):
        from . import _patch

        return getattr(_patch, name)
    if name in ("Invalid", "Tuned", "time_on_gpu", "tune"):
        from . import _tune

        return getattr(_tune, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext apex_cuda``: adds ``%%apex``."""
    from ._notebook import register

    register(shell)
