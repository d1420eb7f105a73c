"""The loss of a language model and its gradient in one Triton kernel: each program keeps a row of 32,000 logits.

Cause: four warps hold a row of 32,768 places, more than their registers do. Remedy: num_warps=16.
"""

import torch
import triton
import triton.language as tl

from harness import main

WORDS = 32000


@triton.jit
def loss_of_rows(logits, gradient, words, losses, columns, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    known = at < columns
    word = tl.load(words + row)
    values = tl.load(logits + row * columns + at, known, -float("inf")).to(tl.float32)
    values -= tl.max(values, 0)
    chances = tl.exp(values)
    total = tl.sum(chances, 0)
    own = tl.sum(tl.where(at == word, values, 0.0), 0)
    tl.store(losses + row, tl.log(total) - own)
    change = (chances / total - tl.where(at == word, 1.0, 0.0)) * scale
    tl.store(gradient + row * columns + at, change.to(tl.bfloat16), known)


def build(remedy, device):
    rows, width = 4096, 256
    hidden = torch.randn(rows, width, device=device, dtype=torch.bfloat16)
    table = torch.randn(WORDS, width, device=device, dtype=torch.bfloat16) * width**-0.5
    words = torch.randint(0, WORDS, (rows,), device=device)
    losses = torch.empty(rows, device=device)
    warps = 16 if remedy else 4

    def step():
        logits = hidden @ table.T
        gradient = torch.empty_like(logits)
        loss_of_rows[(rows,)](logits, gradient, words, losses, WORDS, 1 / rows, triton.next_power_of_2(WORDS), num_warps=warps)
        return losses.mean(), gradient @ table

    return step


if __name__ == "__main__":
    main(build)
