"""The progress bar of a fine-tuning shows the current loss.

Cause: the loss is formatted in every step, which waits for the device. Remedy: it is shown in every 50th step.
"""

import sys

import torch
from torch import nn

from harness import main, small


def build(remedy, device):
    width = small(device, 512, 16)
    layers = [nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True) for _ in range(6)]
    model = nn.Sequential(*layers).to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), fused=device.type == "cuda")
    x = torch.randn(4, 128, width, device=device, dtype=torch.bfloat16)
    counter = iter(range(10**9))

    def step():
        loss = model(x).float().square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        i = next(counter)
        if not remedy or i % 50 == 0:
            print(f"\rstep {i} loss {loss:.4f}", end="", file=sys.stderr)

    return step


if __name__ == "__main__":
    main(build)
