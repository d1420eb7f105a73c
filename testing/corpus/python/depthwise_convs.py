"""A mobile network's blocks: depthwise and pointwise convolutions in FP32.

Cause: depthwise convolutions in FP32 and NCHW. Remedy: channels_last and half precision.
"""

import torch
from torch import nn

from harness import main, small


def build(remedy, device):
    width = small(device, 256, 8)
    blocks = [
        nn.Sequential(
            nn.Conv2d(width, width, 7, padding=3, groups=width), nn.BatchNorm2d(width), nn.Conv2d(width, width, 1), nn.SiLU()
        )
        for _ in range(6)
    ]
    model = nn.Sequential(*blocks).to(device).eval()
    x = torch.randn(small(device, 32, 1), width, small(device, 56, 8), small(device, 56, 8), device=device)
    if remedy:
        model, x = model.half().to(memory_format=torch.channels_last), x.half().to(memory_format=torch.channels_last)

    def step():
        with torch.no_grad():
            return model(x)

    return step


if __name__ == "__main__":
    main(build)
