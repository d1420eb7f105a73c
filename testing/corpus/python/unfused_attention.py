"""Attention written as two matrix products and a softmax: the scores travel through memory several times.

Cause: unfused attention. Remedy: scaled_dot_product_attention.
"""

import math

import torch
import torch.nn.functional as F

from harness import main, small


def build(remedy, device):
    heads, length, depth = small(device, 32, 2), small(device, 2048, 32), 64
    q, k, v = (torch.randn(4, heads, length, depth, device=device, dtype=torch.bfloat16) for _ in range(3))
    mask = torch.full((length, length), float("-inf"), device=device, dtype=torch.bfloat16).triu(1)

    def written():
        scores = q @ k.transpose(-2, -1) / math.sqrt(depth) + mask
        return torch.softmax(scores, dim=-1) @ v

    def fused():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    return fused if remedy else written


if __name__ == "__main__":
    main(build)
