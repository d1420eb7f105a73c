"""Recording, switched on for a part of the program through the session's control page.

The page is the file ``control`` of the session, which ``libapex.so`` maps and looks at in each call
(`crates/record/trace/src/control.rs`); ``apex ctl`` switches the same.
"""

import mmap
import os
import shlex
import sys
import threading
from typing import Any, Optional, Union

from . import _library
from ._session import Session


class NotRecorded(RuntimeError):
    """This process cannot be recorded; the text says why and what to do."""


def is_loaded() -> bool:
    """Whether this process runs under ``apex run``, so that it can be recorded."""
    return _library.loaded() is not None


class _Control:
    """The control page of a session, mapped."""

    _BYTES = 4096
    _MAGIC, _VERSION = b"APEXCTL\0", 1

    def __init__(self, session: str) -> None:
        path = os.path.join(session, "control")
        try:
            with open(path, "r+b") as file:
                self._page = mmap.mmap(file.fileno(), self._BYTES)
        except (OSError, ValueError) as error:
            raise NotRecorded(f"cannot open {path}: {error}") from error
        version = int.from_bytes(self._page[8:12], sys.byteorder)
        if self._page[:8] != self._MAGIC or version != self._VERSION:
            raise NotRecorded(
                f"{path} is not a control page that this apex_cuda knows: install apex_cuda in the "
                "version of the `apex` that runs the program"
            )
        import ctypes

        self._recording = ctypes.c_uint32.from_buffer(self._page, 12)
        self._changes = ctypes.c_uint32.from_buffer(self._page, 44)

    @property
    def recording(self) -> bool:
        """Whether calls are recorded."""
        return self._recording.value != 0

    @recording.setter
    def recording(self, on: bool) -> None:
        self._recording.value = int(on)
        self._changes.value += 1


class _Switch:
    """The control page of this process's session, with how many blocks want recording on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control: Optional[_Control] = None
        self._inside = 0
        self._before = False

    def enter(self, session: str) -> None:
        with self._lock:
            if self._control is None:
                self._control = _Control(session)
            if self._inside == 0:
                self._before = self._control.recording
                if not self._before:
                    self._control.recording = True
            self._inside += 1

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._control is not None and not self._before:
                self._control.recording = False


_SWITCH = _Switch()


class record:
    """Records what happens inside: ``with apex_cuda.record() as session:``.

    The program runs under ``apex run --paused``, which starts with recording off. Blocks may nest
    and may be in several threads: recording is on until the last one ends, and is then as it was.
    The switch is the session's, so it holds for all of its processes; it takes effect at each
    thread's next call. Kernels that are still running when the block ends were launched in it, and
    belong to it.

    Args:
        session: the folder that the program is to be recorded in, as ``apex run -o`` names it.
            Without it the block is recorded in whatever session the process has.
        missing_ok: where the process cannot be recorded, do nothing instead of raising.

    Raises:
        NotRecorded: at the beginning of the block, if this process does not run under ``apex run``,
            or has another session; the text has the command to run.
    """

    def __init__(
        self, session: Union[str, "os.PathLike[str]", None] = None, *, missing_ok: bool = False
    ) -> None:
        self._wanted = None if session is None else os.fspath(session)
        self._missing_ok = missing_ok
        self._entered: list[bool] = []

    def __enter__(self) -> Optional[Session]:
        """The session, to be read after the block; ``None`` where the process cannot be
        recorded."""
        try:
            running = self._running()
            _SWITCH.enter(running)
        except NotRecorded:
            if not self._missing_ok:
                raise
            self._entered.append(False)
            return None
        self._entered.append(True)
        return Session(running)

    def __exit__(self, *_exception: Any) -> None:
        if self._entered.pop():
            _SWITCH.leave()

    def _running(self) -> str:
        """The session of this process."""
        running = _library.session()
        if running is None or not is_loaded():
            raise NotRecorded(
                "this process does not run under APEX, so it cannot be recorded; "
                f"start it with: {self._command()}"
            )
        if self._wanted is not None and os.path.realpath(self._wanted) != os.path.realpath(running):
            raise NotRecorded(
                f"this process is recorded in {running}, and not in {self._wanted}; "
                f"start it with: {self._command()}"
            )
        return running

    def _command(self) -> str:
        """The command that starts this program with APEX."""
        program = getattr(sys, "orig_argv", None) or [sys.executable, *sys.argv]
        output = [] if self._wanted is None else ["-o", self._wanted]
        return " ".join(
            shlex.quote(word) for word in ["apex", "run", "--paused", *output, "--", *program]
        )
