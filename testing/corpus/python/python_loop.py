"""Rows of a tensor are normalised one by one in a Python loop.

Cause: launch-bound by a loop over rows. Remedy: one operation over the whole tensor.
"""

import torch

from harness import main, small


def build(remedy, device):
    rows = small(device, 256, 8)
    x = torch.randn(rows, 4096, device=device)
    out = torch.empty_like(x)

    def loop():
        for i in range(rows):
            out[i] = x[i] / x[i].norm()

    def whole():
        torch.div(x, x.norm(dim=1, keepdim=True), out=out)

    return whole if remedy else loop


if __name__ == "__main__":
    main(build)
