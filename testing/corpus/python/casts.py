"""Weights are kept in FP32 and cast to BF16 in front of every product, the result is cast back.

Cause: casts back and forth. Remedy: weights and activations stay in BF16.
"""

import torch

from harness import main, small


def build(remedy, device):
    width, rows = small(device, 8192, 64), small(device, 256, 8)
    weights = [torch.randn(width, width, device=device) * 0.01 for _ in range(4)]
    x = torch.randn(rows, width, device=device)
    halves, half = [w.bfloat16() for w in weights], x.bfloat16()

    def casting():
        y = x
        for w in weights:
            y = (y.bfloat16() @ w.bfloat16()).float()
        return y

    def staying():
        y = half
        for w in halves:
            y = y @ w
        return y

    return staying if remedy else casting


if __name__ == "__main__":
    main(build)
