"""The average of a model's weights is kept as a deep copy that is made anew in each step.

Cause: copy.deepcopy of a module in every step. Remedy: the average is updated in place, all tensors at once.
"""

import copy

import torch
from torch import nn

from harness import main, small


def build(remedy, device):
    width = small(device, 256, 16)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.SiLU()) for _ in range(24)]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=device.type == "cuda")
    x = torch.randn(512, width, device=device)
    held = {"average": copy.deepcopy(model)}

    @torch.no_grad()
    def update():
        if remedy:
            torch._foreach_lerp_(list(held["average"].parameters()), list(model.parameters()), 1e-3)
            return
        newer = copy.deepcopy(model)
        for new, old in zip(newer.parameters(), held["average"].parameters()):
            new.mul_(1e-3).add_(old, alpha=1 - 1e-3)
        held["average"] = newer

    def step():
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        update()

    return step


if __name__ == "__main__":
    main(build)
