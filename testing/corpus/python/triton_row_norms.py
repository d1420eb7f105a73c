"""The backward pass of a norm of rows in Triton: a gradient for each row, and the sum of all rows' parts for the weights.

Cause: all programs add to one sum and wait for its lock in turn. Remedy: 64 sums with a lock each, added up at the end.
"""

import torch
import triton
import triton.language as tl

from harness import main

ROWS, WIDTH = 2048, 1024


@triton.jit
def norm_gradients(x, change, weights, scales, out, sums, guards, columns, groups, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(x + row * columns + at, inside, 0.0)
    incoming = tl.load(change + row * columns + at, inside, 0.0)
    weight = tl.load(weights + at, inside, 0.0)
    scale = tl.load(scales + row)
    normed = values * scale
    weighted = incoming * weight
    mean = tl.sum(normed * weighted, 0) / columns
    tl.store(out + row * columns + at, (weighted - normed * mean) * scale, inside)

    group = row % groups
    own = sums + group * columns + at
    while tl.atomic_cas(guards + group, 0, 1) == 1:
        pass
    part = incoming * normed + tl.load(own, inside, 0.0)
    tl.store(own, part, inside)
    tl.debug_barrier()
    tl.atomic_xchg(guards + group, 0)


def build(remedy, device):
    groups = 64 if remedy else 1
    x, change = torch.randn(2, ROWS, WIDTH, device=device)
    weights = torch.ones(WIDTH, device=device)
    guards = torch.zeros(groups, dtype=torch.int32, device=device)

    def step():
        scales = (x.square().mean(1) + 1e-6).rsqrt()
        y = x * scales[:, None] * weights
        out, sums = torch.empty_like(x), torch.zeros(groups, WIDTH, device=device)
        norm_gradients[(ROWS,)](x, change, weights, scales, out, sums, guards, WIDTH, groups, WIDTH, num_warps=4)
        weights.sub_(sums.sum(0), alpha=1e-7)
        return y, out

    return step


if __name__ == "__main__":
    main(build)
