"""Kernels of Triton, which loads machine code: a sum, a softmax of rows, a tiled product: `code_triton.py [SIDE]`."""

import sys

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0) * columns, tl.arange(0, BLOCK)
    values = tl.load(x + row + at, mask=at < columns, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + row + at, powers / tl.sum(powers, 0), mask=at < columns)


@triton.jit
def product(a, b, c, side, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    sums = tl.zeros((BLOCK, BLOCK), tl.float32)
    for first in range(0, side, BLOCK):
        inner = first + tl.arange(0, BLOCK)
        left = tl.load(a + rows * side + inner[None, :])
        sums += tl.dot(left, tl.load(b + inner[:, None] * side + columns))
    tl.store(c + rows * side + columns, sums)


def main():
    import torch

    side = int(sys.argv[1]) if len(sys.argv) > 1 else 4096
    x, y = (torch.randn(side, side, device="cuda", dtype=torch.float16) for _ in range(2))
    out = torch.empty_like(x)
    for _ in range(20):
        add[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
        softmax[(side,)](x, out, side, BLOCK=triton.next_power_of_2(side))
        product[(side // 64, side // 64)](x, y, out, side, BLOCK=64)
    torch.cuda.synchronize()
    print(float(out.float().mean()))


if __name__ == "__main__":
    main()
