"""Training of a multilayer perceptron in FP32 without tensor cores.

Cause: matrix products in FP32. Remedy: autocast to BF16.
"""

import contextlib

import torch
from torch import nn

from harness import main, small


def build(remedy, device):
    width = small(device, 4096, 64)
    model = nn.Sequential(*[m for _ in range(3) for m in (nn.Linear(width, width), nn.ReLU())]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    x = torch.randn(small(device, 4096, 8), width, device=device)

    def step():
        torch.set_float32_matmul_precision("highest")
        with torch.autocast(device.type, torch.bfloat16) if remedy else contextlib.nullcontext():
            loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
