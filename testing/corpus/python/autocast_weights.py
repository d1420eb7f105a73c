"""Inference of a large multilayer perceptron under autocast, for a few rows: its FP32 weights are cast to BF16 in every call.

Cause: casts of the weights. Remedy: the weights are BF16.
"""

import torch
from torch import nn

from harness import main, small


def build(remedy, device):
    width = small(device, 8192, 16)
    layers = [layer for _ in range(8) for layer in (nn.Linear(width, width), nn.GELU())]
    model = nn.Sequential(*layers).to(device).eval()
    if remedy:
        model = model.to(torch.bfloat16)
    x = torch.randn(64, width, device=device, dtype=torch.bfloat16 if remedy else torch.float32)

    def step():
        with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=not remedy):
            return model(x)

    return step


if __name__ == "__main__":
    main(build)
