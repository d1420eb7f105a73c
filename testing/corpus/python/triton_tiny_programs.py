"""A scaled addition in Triton whose programs handle 32 elements each.

Cause: millions of programs with little work. Remedy: programs of 2,048 elements.
"""

import torch
import triton
import triton.language as tl

from harness import main


@triton.jit
def add_scaled(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, inside) + 0.5 * tl.load(y + at, inside), inside)


def build(remedy, device):
    n = 1 << 26
    x, y = torch.randn(2, n, device=device)
    out = torch.empty_like(x)
    block = 2048 if remedy else 32

    def step():
        add_scaled[(triton.cdiv(n, block),)](x, y, out, n, BLOCK=block, num_warps=4 if remedy else 1)

    return step


if __name__ == "__main__":
    main(build)
