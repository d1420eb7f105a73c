"""A callback of Lightning's Trainer."""

from typing import Any, Optional

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback

from .._steps import Steps


class StepRecorder(Callback):  # type: ignore[misc]  # Lightning may be absent
    """Names each training batch, and records those from ``start`` to ``stop``:
    ``Trainer(callbacks=[StepRecorder(start=20, stop=40)])``. Arguments as for `apex_cuda.Steps`."""

    def __init__(self, start: Optional[int] = None, stop: Optional[int] = None) -> None:
        super().__init__()
        self.steps = Steps(start, stop)

    def on_train_batch_start(self, *_arguments: Any, **_named: Any) -> None:
        """A step begins."""
        self.steps.begin()

    def on_train_batch_end(self, *_arguments: Any, **_named: Any) -> None:
        """The step ends."""
        self.steps.end()

    def on_train_end(self, *_arguments: Any, **_named: Any) -> None:
        """The training ends."""
        self.steps.close()

    def on_exception(self, *_arguments: Any, **_named: Any) -> None:
        """The training fails."""
        self.steps.close()
