"""APEX from Python: read sessions, steer recording, name ranges.

``python -m apex_cuda run train.py`` records a program; ``apex_cuda.Session(path)`` reads what was
recorded; ``with apex_cuda.record():`` records a part of a running program;
``apex_cuda.range(name)`` names a part of it. Nothing is imported beyond the standard library until
a method needs it.
"""

from . import _command
from ._command import Error
from ._ranges import range
from ._recording import NotRecorded, is_loaded, record
from ._session import Session

__all__ = ["Error", "NotRecorded", "Session", "__version__", "is_loaded", "range", "record"]


def __getattr__(name: str) -> str:
    """``__version__``, which is looked up only where somebody asks for it."""
    if name == "__version__":
        return _command.version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
