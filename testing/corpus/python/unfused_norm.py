"""Layer normalisation written with mean, difference, square, mean, root: each operation is a kernel over the whole tensor.

Cause: unfused norm. Remedy: torch.nn.functional.layer_norm.
"""

import torch
import torch.nn.functional as F

from harness import main, small


def build(remedy, device):
    width = 4096
    x = torch.randn(small(device, 16384, 4), width, device=device)
    weight, bias = torch.ones(width, device=device), torch.zeros(width, device=device)

    def written():
        centred = x - x.mean(dim=-1, keepdim=True)
        variance = centred.pow(2).mean(dim=-1, keepdim=True)
        return centred / torch.sqrt(variance + 1e-5) * weight + bias

    def fused():
        return F.layer_norm(x, (width,), weight, bias, 1e-5)

    return fused if remedy else written


if __name__ == "__main__":
    main(build)
