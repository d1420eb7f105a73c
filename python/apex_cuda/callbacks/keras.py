"""A callback of Keras."""

from typing import Any, Optional

import keras

from .._steps import Steps


class StepRecorder(keras.callbacks.Callback):  # type: ignore[misc]  # Keras may be absent
    """Names each training batch, and records those from ``start`` to ``stop``:
    ``model.fit(…, callbacks=[StepRecorder(start=20, stop=40)])``. Arguments as for
    `apex_cuda.Steps`."""

    def __init__(self, start: Optional[int] = None, stop: Optional[int] = None) -> None:
        super().__init__()
        self.steps = Steps(start, stop)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """A step begins."""
        self.steps.begin()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """The step ends."""
        self.steps.end()

    def on_train_end(self, logs: Any = None) -> None:
        """The training ends."""
        self.steps.close()
