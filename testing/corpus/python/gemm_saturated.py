"""Large matrix products in BF16, one after the other.

Cause: none: the device does what it can. Remedy: none.
"""

import torch

from harness import main, small


def build(remedy, device):
    size = small(device, 8192, 32)
    a, b, c = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(3))

    def step():
        for _ in range(4):
            torch.mm(a, b, out=c)

    return step


if __name__ == "__main__":
    main(build)
