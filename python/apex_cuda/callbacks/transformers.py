"""A callback of Hugging Face's Trainer."""

from typing import Any, Optional

from transformers import TrainerCallback

from .._steps import Steps


class StepRecorder(TrainerCallback):  # type: ignore[misc]  # transformers may be absent
    """Names each step of the optimizer, and records those from ``start`` to ``stop``:
    ``Trainer(callbacks=[StepRecorder(start=20, stop=40)], …)``. Arguments as for
    `apex_cuda.Steps`."""

    def __init__(self, start: Optional[int] = None, stop: Optional[int] = None) -> None:
        super().__init__()
        self.steps = Steps(start, stop)

    def on_step_begin(self, *_arguments: Any, **_named: Any) -> None:
        """A step begins."""
        self.steps.begin()

    def on_step_end(self, *_arguments: Any, **_named: Any) -> None:
        """The step ends."""
        self.steps.end()

    def on_train_end(self, *_arguments: Any, **_named: Any) -> None:
        """The training ends."""
        self.steps.close()
