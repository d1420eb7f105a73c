"""Training of a transformer in BF16 with fused attention, a fused optimizer and torch.compile, at a size that fills the device.

Cause: none: this is how it should be. Remedy: none.
"""

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from harness import main, small


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, -1, 128).permute(2, 0, 3, 1, 4)
        y = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


def build(remedy, device):
    width = small(device, 4096, 128)
    model = nn.Sequential(Block(width), Block(width)).to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    x = torch.randn(small(device, 8, 1), small(device, 2048, 8), width, device=device, dtype=torch.bfloat16)
    compiled = torch.compile(model) if device.type == "cuda" else model

    def step():
        compiled(x).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
