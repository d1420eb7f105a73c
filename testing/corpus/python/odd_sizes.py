"""Matrix products in BF16 whose sizes are odd: rows do not begin at multiples of 16 bytes, and tensor cores starve.

Cause: sizes that miss tensor cores. Remedy: padded to a multiple of 64.
"""

import torch

from harness import main, small


def build(remedy, device):
    odd = small(device, 4097, 33)
    n = (odd + 63) // 64 * 64 if remedy else odd
    a, b = (torch.randn(n, n, device=device, dtype=torch.bfloat16) for _ in range(2))

    def step():
        return torch.relu(a @ b) @ b

    return step


if __name__ == "__main__":
    main(build)
