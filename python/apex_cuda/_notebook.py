"""``%%apex`` in IPython and Jupyter: records a cell and shows what was found.

The kernel's process has to run under ``apex run``, because the library is loaded when a process
starts: ``apex run --paused -o notebook -- jupyter lab`` starts Jupyter so.
"""

import time
from typing import Any, Optional

from ._command import Error
from ._findings import Findings
from ._recording import NotRecorded, record
from ._session import Session

_COMMAND = "apex run --paused -o notebook -- jupyter lab"


def register(shell: Any) -> None:
    """Adds the magic to a shell of IPython."""

    def apex(line: str, cell: str) -> Optional[Findings]:
        """Records the cell, and shows the findings about it.

        ``%%apex`` runs the cell with recording switched on. ``%%apex NAME`` also puts the session
        into the variable NAME.
        """
        return _run(shell, line.strip(), cell)

    shell.register_magic_function(apex, "cell", "apex")


def _run(shell: Any, name: str, cell: str) -> Optional[Findings]:
    if name and not name.isidentifier():
        raise ValueError(f"%%apex takes the name of a variable for the session, and not {name!r}")
    recording = record()
    try:
        session = recording.__enter__()
    except NotRecorded:
        session = None
    if session is None:
        # Outside of `except`: an error of the cell has no other one before it.
        print(f"This kernel does not run under APEX: start Jupyter with `{_COMMAND}`.")
        shell.run_cell(cell)
        return None
    begun = time.monotonic_ns()
    try:
        done = shell.run_cell(cell)
    finally:
        recording.__exit__(None, None, None)
    ended = time.monotonic_ns()
    if not done.success:
        return None
    if name:
        shell.user_ns[name] = session
    return _found(session, begun, ended)


def _found(session: Session, begun: int, ended: int) -> Optional[Findings]:
    """The findings about what was called between these moments of the monotonic clock."""
    origin = session.report()["origin_monotonic_ns"]
    try:
        return session.findings(window=f"{max(0, begun - origin)}ns..{ended - origin}ns")
    except Error as error:
        # Nothing was called, for example.
        print(f"apex: {error}")
        return None
