"""Menus of restaurants: how likely a model of language holds each word at each place, as logarithms, in a kernel of our own."""

import argparse
import time

import torch
import triton
import triton.language as tl

PLACES, KNOWN = 24_576, 32_768


@triton.jit
def likelihoods(scores, out, heat, KNOWN: tl.constexpr, PART: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * KNOWN
    at = tl.arange(0, PART)
    highest = tl.full([PART], float("-inf"), tl.float32)
    for first in range(0, KNOWN, PART):
        highest = tl.maximum(highest, tl.load(scores + row + first + at) * heat)
    top = tl.max(highest, 0)
    total = tl.zeros([PART], tl.float32)
    for first in range(0, KNOWN, PART):
        total += tl.exp(tl.load(scores + row + first + at) * heat - top)
    less = top + tl.log(tl.sum(total, 0))
    for first in range(0, KNOWN, PART):
        score = tl.load(scores + row + first + at) * heat
        tl.store(out + row + first + at, score - less)


class Menus:
    def __init__(self):
        self.scores = torch.randn(PLACES, KNOWN, device="cuda")
        self.written = torch.randint(0, KNOWN, (PLACES, 1), device="cuda")
        self.likely = torch.empty_like(self.scores)

    def surprise(self, heat):
        likelihoods[(PLACES,)](self.scores, self.likely, heat, KNOWN, 2048, num_warps=4)
        return -self.likely.gather(1, self.written).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    torch.manual_seed(12)
    menus = Menus()
    for number in range(3):
        surprise = menus.surprise(1.5 + 0.1 * number)
    torch.cuda.synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        surprise = menus.surprise(0.5 + 0.003 * (steps % 500))
        steps += 1
        if steps % 20 == 0:
            torch.cuda.synchronize()
        if steps % 500 == 0:
            print(f"{steps} heats: {surprise.item():.4f}")
    torch.cuda.synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
