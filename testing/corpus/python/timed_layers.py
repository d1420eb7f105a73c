"""Each layer's time is taken with torch.cuda.synchronize() and time.time().

Cause: the host waits for the device after every layer. Remedy: it does not.
"""

import time

import torch
from torch import nn

from harness import main, small


def build(remedy, device):
    width = small(device, 1024, 16)
    layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()) for _ in range(24))
    layers = layers.to(device, torch.bfloat16)
    x = torch.randn(small(device, 4096, 4), width, device=device, dtype=torch.bfloat16)
    times = [0.0] * len(layers)

    def step():
        with torch.no_grad():
            y = x
            for at, layer in enumerate(layers):
                began = time.time()
                y = y + layer(y)
                if not remedy and device.type == "cuda":
                    torch.cuda.synchronize()
                times[at] += time.time() - began

    return step


if __name__ == "__main__":
    main(build)
