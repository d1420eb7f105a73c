"""The gradients of 400 small parameters are reduced one by one.

Cause: collectives that are too small. Remedy: one collective over all gradients.
"""

import torch
import torch.distributed as dist

from harness import main, small


def build(remedy, device):
    n = small(device, 2048, 32)
    a = torch.randn(n, n, device=device, dtype=torch.bfloat16)
    flat = torch.randn(small(device, 400, 4) * 4096, device=device)
    gradients = flat.view(-1, 4096).unbind()

    def step():
        for _ in range(8):
            torch.mm(a, a)
        if remedy:
            dist.all_reduce(flat)
        else:
            for gradient in gradients:
                dist.all_reduce(gradient)

    return step


if __name__ == "__main__":
    main(build)
