"""A training loop saves the model and its optimizer in every fifth step, for safety.

Cause: torch.save writes to the disk while the device waits. Remedy: save in every 500th step.
"""

import tempfile
from pathlib import Path

import torch
from torch import nn

from harness import main, small


def build(remedy, device):
    width = small(device, 2048, 32)
    model = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(width, width), nn.ReLU())]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    x = torch.randn(small(device, 8192, 16), width, device=device)
    folder, done = tempfile.TemporaryDirectory(), [0]

    def step():
        with torch.autocast(device.type, torch.bfloat16):
            loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        done[0] += 1
        if done[0] % (500 if remedy else 5) == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": done[0]}
            torch.save(state, Path(folder.name) / "last.pt")

    return step


if __name__ == "__main__":
    main(build)
