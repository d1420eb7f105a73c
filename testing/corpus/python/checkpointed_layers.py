"""Each layer of a small transformer is checkpointed, although memory is not short.

Cause: every layer's forward pass is computed twice. Remedy: no checkpointing.
"""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from harness import main, small


def build(remedy, device):
    width = small(device, 1024, 16)
    layers = nn.ModuleList(
        nn.TransformerEncoderLayer(width, 16, 4 * width, batch_first=True, norm_first=True, dropout=0.0) for _ in range(6)
    ).to(device, torch.bfloat16)
    x = torch.randn(small(device, 16, 1), small(device, 1024, 8), width, device=device, dtype=torch.bfloat16)

    def step():
        y = x
        for layer in layers:
            y = layer(y) if remedy else checkpoint(layer, y, use_reentrant=False)
        y.float().square().mean().backward()
        layers.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
