"""Gradient accumulation over 32 micro-batches of one sequence, on a device that could hold them all.

Cause: launch-bound, because micro-batches are tiny. Remedy: one batch of 32 sequences.
"""

import torch
from torch import nn

from harness import main, small


def build(remedy, device):
    width, whole, length = small(device, 512, 32), small(device, 32, 4), small(device, 128, 8)
    layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, dropout=0.0, norm_first=True)
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    x = torch.randn(whole, length, width, device=device)

    def step():
        for part in x.split(whole if remedy else 1):
            with torch.autocast(device.type, torch.bfloat16):
                loss = model(part).square().mean() * (len(part) / whole)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
