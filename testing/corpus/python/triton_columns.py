"""Sums of a matrix's columns in Triton: each program reads one column.

Cause: neighbouring lanes read addresses a row apart. Remedy: each program reads 64 columns, row by row.
"""

import torch
import triton
import triton.language as tl

from harness import main


@triton.jit
def sum_column(x, out, rows, columns, R: tl.constexpr):
    column = tl.program_id(0)
    total = tl.zeros((R,), dtype=tl.float32)
    for at in range(0, rows, R):
        total += tl.load(x + (at + tl.arange(0, R)) * columns + column)
    tl.store(out + column, tl.sum(total, 0))


@triton.jit
def sum_columns(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    column = tl.program_id(0) * C + tl.arange(0, C)
    first = tl.program_id(1) * 512
    total = tl.zeros((R, C), dtype=tl.float32)
    for at in range(first, first + 512, R):
        total += tl.load(x + (at + tl.arange(0, R))[:, None] * columns + column[None, :])
    tl.atomic_add(out + column, tl.sum(total, 0))


def build(remedy, device):
    rows, columns = 8192, 8192
    x = torch.randn(rows, columns, device=device)
    out = torch.zeros(columns, device=device)

    def step():
        if remedy:
            out.zero_()
            sum_columns[(columns // 64, rows // 512)](x, out, rows, columns, R=32, C=64)
        else:
            sum_column[(columns,)](x, out, rows, columns, R=1024)

    return step


if __name__ == "__main__":
    main(build)
