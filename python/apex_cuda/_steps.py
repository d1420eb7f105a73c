"""The steps of a training: each a range, some of them recorded.

Callbacks of trainers (`apex_cuda.callbacks`) are adapters of `Steps`.
"""

import contextlib
from collections.abc import Iterator
from typing import Optional

from ._ranges import range
from ._recording import record
from ._session import Session


class Steps:
    """Names each step of a training, and records those from ``start`` to ``stop``.

    ``apex run -- python train.py`` records all steps; with ``start``, the program runs under ``apex
    run --paused``, and only these steps are recorded. A program that does not run under ``apex run``
    trains as without it.

    Raises:
        TypeError, ValueError: an argument is no such number or text.

    Args:
        start: the first step that is recorded, counted from 0; ``None`` leaves recording as it is.
        stop: the first step that is not recorded any more; ``None`` records to the end.
        name: the steps' range.

    Attributes:
        session: the session, once a step is recorded by ``start``.
    """

    def __init__(
        self, start: Optional[int] = None, stop: Optional[int] = None, *, name: str = "step"
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(f"name is the steps' range, a text, and not {name!r}")
        for what, step, least in (("start", start, 0), ("stop", stop, 1)):
            _check(what, step, least)
        if start is not None and stop is not None and stop <= start:
            raise ValueError(f"stop is {stop}: it has to come after start, which is {start}")
        self.session: Optional[Session] = None
        self._start, self._stop = start, stop
        self._step = 0
        self._range = range(name)
        self._in_step = False
        self._recording: Optional[record] = None

    def begin(self) -> None:
        """A step begins."""
        if self._in_step:
            self.end()
        if self._step == self._start:
            self._recording = record(missing_ok=True)
            self.session = self._recording.__enter__()
        self._range.__enter__()
        self._in_step = True

    def end(self) -> None:
        """The step ends."""
        if not self._in_step:
            return
        self._range.__exit__(None, None, None)
        self._in_step = False
        self._step += 1
        if self._step == self._stop:
            self._stop_recording()

    def close(self) -> None:
        """The training ends, or fails."""
        self.end()
        self._stop_recording()

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """A step of a loop of one's own: ``with steps.step():``."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    def _stop_recording(self) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.__exit__(None, None, None)


def _check(what: str, step: Optional[int], least: int) -> None:
    """Refuses what is no number of a step: recording would silently never begin, or never end."""
    if step is None:
        return
    if isinstance(step, bool) or not isinstance(step, int):
        raise TypeError(f"{what} is the number of a step, or None, and not {step!r}")
    if step < least:
        raise ValueError(f"{what} is {step}: it is at least {least}, because steps count from 0")
