"""Sixteen requests go through a large model one by one: each reads all weights for one row.

Cause: the batch is too small. Remedy: one batch of sixteen. A step is all sixteen requests.
"""

import torch
import torch.nn.functional as F

from harness import main, small


def build(remedy, device):
    width = small(device, 8192, 32)
    weights = [torch.randn(width, width, device=device, dtype=torch.bfloat16) * 0.01 for _ in range(6)]
    requests = torch.randn(16, width, device=device, dtype=torch.bfloat16)

    def answer(x):
        for w in weights:
            x = F.relu(F.linear(x, w))
        return x

    def step():
        with torch.no_grad():
            if remedy:
                answer(requests)
            else:
                for i in range(16):
                    answer(requests[i : i + 1])

    return step


if __name__ == "__main__":
    main(build)
