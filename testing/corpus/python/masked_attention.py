"""Causal attention that gets its mask as a tensor.

Cause: a mask as a tensor excludes the fastest kernels of attention. Remedy: is_causal=True.
"""

import torch
import torch.nn.functional as F

from harness import main, small


def build(remedy, device):
    batch, heads, length, width = small(device, 8, 1), 16, small(device, 4096, 16), 128
    q, k, v = torch.randn(3, batch, heads, length, width, device=device, dtype=torch.bfloat16)
    weight = torch.randn(heads * width, heads * width, device=device, dtype=torch.bfloat16)
    mask = torch.ones(length, length, device=device, dtype=torch.bool).tril()

    def step():
        out = F.scaled_dot_product_attention(q, k, v, **({"is_causal": True} if remedy else {"attn_mask": mask}))
        return out.transpose(1, 2).reshape(batch, length, -1) @ weight

    return step


if __name__ == "__main__":
    main(build)
