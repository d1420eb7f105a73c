"""Inference of convolutions, each followed by batch normalisation, an activation and a residual, as kernels of their own.

Cause: layers of many kernels. Remedy: torch.compile.
"""

import torch
from torch import nn

from harness import main, small


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x):
        return x + nn.functional.silu(self.norm(self.conv(x)))


def build(remedy, device):
    width, side = small(device, 64, 4), small(device, 256, 8)
    model = nn.Sequential(*[Block(width) for _ in range(6)]).to(device, torch.float16).eval()
    model = model.to(memory_format=torch.channels_last)
    call = torch.compile(model) if remedy and device.type == "cuda" else model
    x = torch.randn(small(device, 32, 1), width, side, side, device=device, dtype=torch.float16)
    x = x.to(memory_format=torch.channels_last)

    def step():
        with torch.no_grad():
            return call(x)

    return step


if __name__ == "__main__":
    main(build)
