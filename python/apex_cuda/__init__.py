"""APEX from Python: read sessions, steer recording, name ranges.

``python -m apex_cuda run train.py`` records a program; ``apex_cuda.Session(path)`` reads what was
recorded; ``with apex_cuda.record():`` records a part of a running program;
``apex_cuda.range(name)`` names a part of it. Nothing is imported beyond the standard library until
a method needs it.
"""

from ._command import Error
from ._ranges import range
from ._recording import NotRecorded, is_loaded, record
from ._session import Session

__all__ = ["Error", "NotRecorded", "Session", "is_loaded", "range", "record"]
