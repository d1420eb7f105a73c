"""A matrix product in Triton of FP32 inputs, with input_precision="ieee".

Cause: the product does not use tensor cores. Remedy: input_precision="tf32".
"""

import torch
import triton
import triton.language as tl

from harness import main


@triton.jit
def product(a, b, c, n, M: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr):
    rows, columns, inner = tl.program_id(1) * M + tl.arange(0, M), tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, K)
    total = tl.zeros((M, M), dtype=tl.float32)
    for k in range(0, n, K):
        x = tl.load(a + rows[:, None] * n + k + inner[None, :])
        y = tl.load(b + (k + inner)[:, None] * n + columns[None, :])
        total += tl.dot(x, y, input_precision=PRECISION)
    tl.store(c + rows[:, None] * n + columns[None, :], total)


def build(remedy, device):
    n = 4096
    a, b = torch.randn(2, n, n, device=device)
    c = torch.empty_like(a)
    precision = "tf32" if remedy else "ieee"

    def step():
        product[(n // 64, n // 64)](a, b, c, n, M=64, K=32, PRECISION=precision, num_warps=4)

    return step


if __name__ == "__main__":
    main(build)
