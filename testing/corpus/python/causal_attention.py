"""Training of a transformer block whose causal attention is written out, as in many tutorials.

Cause: attention of many kernels. Remedy: scaled_dot_product_attention.
"""

import math

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from harness import main, small


class Attention(nn.Module):
    def __init__(self, width, heads, length, fused):
        super().__init__()
        self.heads, self.fused = heads, fused
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("mask", torch.tril(torch.ones(length, length)).bool())

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if self.fused:
            y = scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
            scores = scores.masked_fill(~self.mask[:length, :length], float("-inf"))
            y = torch.dropout(scores.softmax(-1), 0.1, self.training) @ v
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, *rest):
        super().__init__()
        self.norm1, self.norm2, self.attention = nn.LayerNorm(width), nn.LayerNorm(width), Attention(width, *rest)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def build(remedy, device):
    width, length = small(device, 1024, 32), small(device, 2048, 16)
    model = nn.Sequential(*[Block(width, small(device, 16, 2), length, remedy) for _ in range(2)]).to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    x = torch.randn(small(device, 8, 1), length, width, device=device, dtype=torch.bfloat16)

    def step():
        model(x).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main(build)
