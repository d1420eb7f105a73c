"""GELU written as its formula: eight kernels over the whole tensor.

Cause: unfused activation. Remedy: torch.nn.functional.gelu.
"""

import math

import torch
import torch.nn.functional as F

from harness import main, small


def build(remedy, device):
    x = torch.randn(small(device, 1 << 26, 256), device=device)

    def written():
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))

    def fused():
        return F.gelu(x, approximate="tanh")

    return fused if remedy else written


if __name__ == "__main__":
    main(build)
