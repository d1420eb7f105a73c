"""A gated activation in Triton for batches whose number of tokens is never the same twice; blocks are chosen by trying some.

Cause: the choice belongs to one number of tokens, so each batch tries all blocks anew. Remedy: one choice for each power of two.
"""

import functools

import torch
import triton
import triton.language as tl
from triton.testing import do_bench

from harness import main

WIDTH = 1024


def gate_tokens(x, gate, out, numbers, about, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    known = at < numbers
    value = tl.load(gate + at, known).to(tl.float32)
    value = value * tl.sigmoid(value) * tl.load(x + at, known).to(tl.float32)
    tl.store(out + at, value.to(tl.bfloat16), known)


def tuned(key):
    choices = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((512, 4), (1024, 4), (2048, 8))]
    short = functools.partial(do_bench, warmup=1, rep=4)
    return triton.autotune(choices, key=[key], do_bench=short)(triton.jit(gate_tokens))


def build(remedy, device):
    kernel = tuned("about" if remedy else "numbers")
    most = 16384
    x, gate = torch.randn(2, most, WIDTH, device=device, dtype=torch.bfloat16)
    weight = torch.randn(WIDTH, WIDTH, device=device, dtype=torch.bfloat16) * WIDTH**-0.5
    state = {"batch": 0}

    def step():
        state["batch"] += 1
        tokens = most // 2 + state["batch"] * 37 % (most // 2)
        mixed, out = x[:tokens] @ weight, torch.empty(tokens, WIDTH, device=device, dtype=torch.bfloat16)
        numbers = out.numel()
        kernel[lambda chosen: (triton.cdiv(numbers, chosen["BLOCK"]),)](mixed, gate, out, numbers, triton.next_power_of_2(numbers))
        return out @ weight

    return step


if __name__ == "__main__":
    main(build)
