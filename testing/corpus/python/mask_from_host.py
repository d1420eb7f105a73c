"""The attention mask is made on the CPU and copied to the device in every call.

Cause: the host's own code and its copies on the critical path. Remedy: the mask is made once.
"""

import torch
from torch.nn.functional import scaled_dot_product_attention

from harness import main, small


def build(remedy, device):
    length = small(device, 2048, 8)
    q, k, v = (torch.randn(2, 16, length, 64, device=device, dtype=torch.bfloat16) for _ in range(3))
    kept = torch.tril(torch.ones(length, length)).bool().to(device)

    def step():
        mask = kept if remedy else torch.tril(torch.ones(length, length)).bool().to(device)
        y = q
        for _ in range(4):
            y = scaled_dot_product_attention(y, k, v, attn_mask=mask)

    return step


if __name__ == "__main__":
    main(build)
