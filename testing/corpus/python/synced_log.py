"""A training loop appends its loss to a log and syncs the file to disk, so that nothing is lost when the job dies.

Cause: os.fsync in every step. Remedy: the log is synced once in 200 steps.
"""

import json
import os
import tempfile

import torch
from torch import nn

from harness import main, small


def build(remedy, device):
    width = small(device, 1024, 16)
    model = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width)).to(device, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(64, width, device=device, dtype=torch.bfloat16)
    log = tempfile.NamedTemporaryFile("w", suffix=".jsonl", dir=".")
    state = {"step": 0}

    def step():
        loss = model(x).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        state["step"] += 1
        for name in ("train/loss", "train/grad", "train/rate", "train/tokens"):
            log.write(json.dumps({"step": state["step"], "name": name, "rate": 1e-3}) + "\n")
            if not remedy or state["step"] % 200 == 0:
                log.flush()
                os.fsync(log.fileno())

    return step


if __name__ == "__main__":
    main(build)
