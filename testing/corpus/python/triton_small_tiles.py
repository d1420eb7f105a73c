"""A matrix product in Triton whose tiles have 16 rows and 16 columns.

Cause: tiles too small for reuse. Remedy: tiles of 128 by 128.
"""

import torch
import triton
import triton.language as tl

from harness import main


@triton.jit
def product(a, b, c, n, M: tl.constexpr, K: tl.constexpr):
    rows, columns, inner = tl.program_id(1) * M + tl.arange(0, M), tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, K)
    total = tl.zeros((M, M), dtype=tl.float32)
    for k in range(0, n, K):
        x = tl.load(a + rows[:, None] * n + k + inner[None, :])
        y = tl.load(b + (k + inner)[:, None] * n + columns[None, :])
        total += tl.dot(x, y)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.bfloat16))


def build(remedy, device):
    n, tile = 4096, 128 if remedy else 16
    a, b = torch.randn(2, n, n, device=device, dtype=torch.bfloat16)
    c = torch.empty_like(a)

    def step():
        product[(n // tile, n // tile)](a, b, c, n, M=tile, K=64 if remedy else 16, num_warps=8 if remedy else 4)

    return step


if __name__ == "__main__":
    main(build)
