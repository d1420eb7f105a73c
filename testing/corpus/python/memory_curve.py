"""A training loop draws a curve of the GPU's memory: it writes down a number after each step.

Cause: nvidia-smi is started in every step. Remedy: the number of torch.cuda.memory_allocated.
"""

import shutil
import subprocess

import torch
from torch import nn

from harness import main, small

QUERY = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]


def used_mebibytes():
    query = QUERY if shutil.which(QUERY[0]) else ["echo", "0"]
    return int(subprocess.check_output(query, text=True).split()[0])


class Curve:
    def __init__(self):
        self.steps, self.values, self.peak = [], [], 0

    def add(self, step, value):
        self.steps.append(step)
        self.values.append(value)
        self.peak = max(self.peak, value)


def build(remedy, device):
    width, rows = small(device, 2048, 16), small(device, 8192, 8)
    layers = [nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()) for _ in range(6)]
    model = nn.Sequential(*layers).to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    x = torch.randn(rows, width, device=device, dtype=torch.bfloat16)
    curve = Curve()

    def step():
        loss = model(x).float().square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        value = torch.cuda.memory_allocated() >> 20 if remedy else used_mebibytes()
        curve.add(len(curve.steps), value)

    return step


if __name__ == "__main__":
    main(build)
