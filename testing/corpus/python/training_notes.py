"""A training loop keeps notes, and each note says which function wrote it.

Cause: inspect.stack() collects frames, modules and source lines for each note. Remedy: sys._getframe gives the caller's name.
"""

import inspect
import sys

import torch
from torch import nn

from harness import main, small


class Notes:
    def __init__(self, quick):
        self.lines, self.quick = [], quick

    def note_progress(self, step, text):
        caller = sys._getframe(1).f_code.co_name if self.quick else inspect.stack()[1].function
        self.lines.append(f"[{step:6d}] {caller}: {text}")
        del self.lines[:-1000]


class Trainer:
    def __init__(self, model, optimizer, notes):
        self.model, self.optimizer, self.notes, self.steps = model, optimizer, notes, 0

    def forward(self, x, y):
        self.notes.note_progress(self.steps, f"{len(x)} rows of {x.shape[1]} numbers")
        return nn.functional.mse_loss(self.model(x), y)

    def update(self, loss):
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        rate = self.optimizer.param_groups[0]["lr"]
        self.notes.note_progress(self.steps, f"rate {rate:.2e}")

    def step(self, x, y):
        self.update(self.forward(x, y))
        self.steps += 1


def build(remedy, device):
    width, rows = small(device, 1024, 16), small(device, 4096, 8)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.SiLU()) for _ in range(6)]).to(device, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=device.type == "cuda")
    trainer = Trainer(model, optimizer, Notes(remedy))
    x = torch.randn(rows, width, device=device, dtype=torch.bfloat16)
    y = torch.randn(rows, width, device=device, dtype=torch.bfloat16)
    return lambda: trainer.step(x, y)


if __name__ == "__main__":
    main(build)
