"""Triton: a fused softmax and a tiled matrix product, each with several configurations, launched by Triton's own launcher."""

import torch
import triton
import triton.language as tl
from output import write


@triton.jit
def softmax_rows(out, x, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + offsets, mask=offsets < columns, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + offsets, values / tl.sum(values, axis=0), mask=offsets < columns)


@triton.jit
def matrix_product(c, a, b, n, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    sums = tl.zeros((M, N), dtype=tl.float32)
    for k in range(0, n, K):
        left = tl.load(a + rows[:, None] * n + (k + inner)[None, :])
        right = tl.load(b + (k + inner)[:, None] * n + columns[None, :])
        sums += tl.dot(left, right)
    tl.store(c + rows[:, None] * n + columns[None, :], sums)


generator = torch.Generator().manual_seed(3)
x = torch.randn(999, 700, generator=generator).cuda()
out = torch.full_like(x, float("nan"))
for warps in (1, 2, 4, 8):
    for _ in range(50):
        softmax_rows[(x.shape[0],)](out, x, x.shape[1], BLOCK=1024, num_warps=warps)
    write(out.cpu().numpy())

n = 512
a = torch.randn(n, n, generator=generator).cuda().half()
b = torch.randn(n, n, generator=generator).cuda().half()
c = torch.full((n, n), float("nan"), device="cuda")
for tile in (32, 64, 128):
    for _ in range(20):
        matrix_product[(n // tile, n // tile)](c, a, b, n, M=tile, N=tile, K=32)
    write(c.cpu().numpy())
