"""An average of the weights is kept on the CPU and brought up to date after every step.

Cause: all weights are copied to the CPU and added there. Remedy: the average stays on the device.
"""

import torch
from torch import nn

from harness import main, small


def build(remedy, device):
    width = small(device, 2048, 16)
    model = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(width, width), nn.GELU())])
    model = model.to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    average = [p.detach().to(device if remedy else "cpu", torch.float32, copy=True) for p in model.parameters()]
    x = torch.randn(small(device, 4096, 4), width, device=device, dtype=torch.bfloat16)

    def step():
        model(x).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for kept, p in zip(average, model.parameters(), strict=True):
                kept.lerp_(p.detach().float().to(kept.device), 0.001)

    return step


if __name__ == "__main__":
    main(build)
