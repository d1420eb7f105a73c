"""Inputs come from NumPy as float64, and .double() made the model agree.

Cause: matrix products in FP64. Remedy: float32, with TF32.
"""

import numpy as np
import torch
from torch import nn

from harness import main, small


def build(remedy, device):
    width = small(device, 2048, 16)
    x = torch.from_numpy(np.random.default_rng(1).normal(size=(small(device, 4096, 8), width))).to(device)
    model = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width)).to(device)
    model, x = (model.float(), x.float()) if remedy else (model.double(), x)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=device.type == "cuda")

    def step():
        torch.set_float32_matmul_precision("high")
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
