"""A new head on a trained network learns to name diseases of leaves. Only the head is given to the optimizer.

Cause: gradients of the whole trained network are computed, and nobody uses them. Remedy: requires_grad_(False).
"""

import timm
import torch
from torch import nn

from harness import main, small


def build(remedy, device):
    count, side = small(device, 128, 2), small(device, 160, 64)
    layout = {"device": device, "dtype": torch.bfloat16, "memory_format": torch.channels_last}
    trunk = timm.create_model(small(device, "resnet50", "resnet18"), pretrained=False, num_classes=0).to(**layout).eval()
    if remedy:
        trunk.requires_grad_(False)
    head = nn.Sequential(nn.Linear(trunk.num_features, 256), nn.ReLU(), nn.Linear(256, 38)).to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3, fused=device.type == "cuda")
    leaves = torch.randn(count, 3, side, side, device=device).to(**layout)
    names = torch.randint(0, 38, (count,), device=device)

    def step():
        loss = nn.functional.cross_entropy(head(trunk(leaves)), names)
        loss.backward()
        optimizer.step()
        head.zero_grad()
        trunk.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
