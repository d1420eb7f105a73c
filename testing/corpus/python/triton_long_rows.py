"""A Triton kernel sums eight long rows, a program for each.

Cause: a grid that is too small. Remedy: many programs for each row, and a second kernel.
"""

import torch
import triton
import triton.language as tl

from harness import main


@triton.jit
def row_sums(x, out, length, BLOCK: tl.constexpr):
    row, total = tl.program_id(0), tl.zeros([BLOCK], tl.float32)
    for start in range(0, length, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * length + at, at < length, 0.0)
    tl.store(out + row, tl.sum(total, 0))


def build(remedy, device):
    rows, length, parts = 8, 1 << 22, 256
    x = torch.rand(rows, length, device=device)
    out, partial = torch.empty(rows, device=device), torch.empty(rows * parts, device=device)

    def step():
        if remedy:
            row_sums[(rows * parts,)](x, partial, length // parts, BLOCK=1024)
            row_sums[(rows,)](partial, out, parts, BLOCK=1024)
        else:
            row_sums[(rows,)](x, out, length, BLOCK=1024)

    return step


if __name__ == "__main__":
    main(build)
