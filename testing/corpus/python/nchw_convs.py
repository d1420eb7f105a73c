"""Convolutions in half precision on tensors in NCHW: cuDNN converts each input and output to NHWC and back.

Cause: layout conversions. Remedy: channels_last.
"""

import torch
from torch import nn

from harness import main, small


def build(remedy, device):
    channels = small(device, 256, 8)
    layers = [m for _ in range(4) for m in (nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.ReLU(inplace=True))]
    model = nn.Sequential(*layers).to(device, torch.float16)
    x = torch.randn(small(device, 64, 2), channels, small(device, 56, 8), small(device, 56, 8), device=device, dtype=torch.float16)
    if remedy:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)

    def step():
        with torch.no_grad():
            model(x)

    return step


if __name__ == "__main__":
    main(build)
