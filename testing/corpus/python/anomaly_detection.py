"""Training with torch.autograd.set_detect_anomaly, which somebody left on.

Cause: a check that waits after each operation of the backward pass. Remedy: anomaly detection is off.
"""

import torch
from torch import nn

from harness import main, small


def build(remedy, device):
    width = small(device, 1024, 8)
    layers = [layer for _ in range(16) for layer in (nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())]
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    x, y = torch.randn(2, small(device, 2048, 4), width, device=device)

    def step():
        with torch.autograd.set_detect_anomaly(not remedy):
            nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
