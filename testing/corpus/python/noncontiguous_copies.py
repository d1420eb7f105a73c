"""A transposed tensor is made contiguous in every step, in front of operations that do not need it.

Cause: copies of non-contiguous tensors. Remedy: the tensor is used as it lies.
"""

import torch

from harness import main, small


def build(remedy, device):
    length, width = small(device, 2048, 8), small(device, 4096, 16)
    x = torch.randn(16, length, width, device=device, dtype=torch.bfloat16)
    scale = torch.randn(width, 1, device=device, dtype=torch.bfloat16)

    def copying():
        turned = x.transpose(1, 2).contiguous()
        return (turned * scale).transpose(1, 2).contiguous()

    def as_it_lies():
        return x * scale.view(1, 1, width)

    return as_it_lies if remedy else copying


if __name__ == "__main__":
    main(build)
