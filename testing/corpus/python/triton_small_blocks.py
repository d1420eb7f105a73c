"""A Triton kernel adds vectors in blocks of 32 elements: a million programs, each with less than one element for a thread.

Cause: blocks that do too little. Remedy: blocks of 1,024 elements.
"""

import torch
import triton
import triton.language as tl

from harness import main


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask) + tl.load(y + at, mask), mask)


def build(remedy, device):
    n, block = 1 << 25, 1024 if remedy else 32
    x, y = torch.rand(n, device=device), torch.rand(n, device=device)
    out = torch.empty_like(x)

    def step():
        add[(triton.cdiv(n, block),)](x, y, out, n, BLOCK=block)

    return step


if __name__ == "__main__":
    main(build)
