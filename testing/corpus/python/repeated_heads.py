"""Decoding with grouped-query attention: keys and values are repeated for each head before attention.

Cause: repeat_interleave copies the cache eight times larger in each step. Remedy: enable_gqa.
"""

import torch
from torch.nn import functional as F

from harness import main, small


def build(remedy, device):
    batch, heads, groups, length, width = small(device, 16, 1), 32, 4, small(device, 4096, 16), 128
    keys, values = torch.randn(2, batch, groups, length, width, device=device, dtype=torch.bfloat16)
    query = torch.randn(batch, heads, 1, width, device=device, dtype=torch.bfloat16)

    def step():
        with torch.no_grad():
            if remedy:
                return F.scaled_dot_product_attention(query, keys, values, enable_gqa=True)
            k, v = (cache.repeat_interleave(heads // groups, dim=1) for cache in (keys, values))
            return F.scaled_dot_product_attention(query, k, v)

    return step


if __name__ == "__main__":
    main(build)
