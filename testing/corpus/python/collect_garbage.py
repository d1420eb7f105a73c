"""Training that calls gc.collect() in every step, against running out of memory.

Cause: the host's own code between steps. Remedy: the collection is left out.
"""

import gc

import torch
from torch import nn

from harness import main, small


def build(remedy, device):
    width = small(device, 2048, 32)
    model = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(width, width), nn.GELU())]).to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    x = torch.randn(small(device, 8192, 8), width, device=device, dtype=torch.bfloat16)

    def step():
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if not remedy:
            gc.collect()

    return step


if __name__ == "__main__":
    main(build)
