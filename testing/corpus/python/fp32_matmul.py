"""Matrix products in FP32 without tensor cores.

Cause: TF32 is off. Remedy: torch.set_float32_matmul_precision("high").
"""

import torch

from harness import main, small


def build(remedy, device):
    n = small(device, 4096, 64)
    a, b = (torch.randn(n, n, device=device) for _ in range(2))
    precision = "high" if remedy else "highest"

    def step():
        torch.set_float32_matmul_precision(precision)
        torch.relu(a @ b) @ b

    return step


if __name__ == "__main__":
    main(build)
