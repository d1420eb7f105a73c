"""nn.MultiheadAttention is called as its documentation does first: it returns the attention weights, which nobody reads.

Cause: attention of many kernels. Remedy: need_weights=False, which takes the fused kernel.
"""

import torch
from torch import nn

from harness import main, small


def build(remedy, device):
    width = small(device, 1024, 32)
    attention = nn.MultiheadAttention(width, small(device, 16, 2), batch_first=True).to(device, torch.bfloat16)
    x = torch.randn(small(device, 8, 1), small(device, 2048, 8), width, device=device, dtype=torch.bfloat16)

    def step():
        y, _ = attention(x, x, x, need_weights=not remedy)
        y.float().square().mean().backward()
        attention.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
