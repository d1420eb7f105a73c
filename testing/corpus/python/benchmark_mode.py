"""A convolutional network gets pictures of ever other sizes, with torch.backends.cudnn.benchmark = True.

Cause: cuDNN tries its algorithms anew for each size. Remedy: benchmark mode off.
"""

import itertools

import torch
from torch import nn

from harness import main, small

sizes = itertools.count(1)


def build(remedy, device):
    width = small(device, 64, 4)
    model = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3), *[nn.Conv2d(width, width, 3, padding=1) for _ in range(6)])
    model = model.to(device, torch.float16, memory_format=torch.channels_last)

    def step():
        torch.backends.cudnn.benchmark = not remedy
        n = next(sizes)
        high, wide = (64, 64 + n % 8) if device.type != "cuda" else (256 + n * 7 % 401, 256 + n * 13 % 397)
        x = torch.ones(4, 3, high, wide, device=device, dtype=torch.float16).to(memory_format=torch.channels_last)
        with torch.no_grad():
            return model(x)

    return step


if __name__ == "__main__":
    main(build)
