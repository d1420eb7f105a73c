"""Long records of courts are read by a model that goes from word to word: attention to all words so far, in a kernel of our own."""

import argparse
import math
import time

import torch
import triton
import triton.language as tl

CASES, HEADS, WORDS, SIZE = 2, 16, 8192, 64


@triton.jit
def attend(q, k, v, out, scale, WORDS: tl.constexpr, SIZE: tl.constexpr, OWN: tl.constexpr, OTHERS: tl.constexpr):
    block = tl.program_id(0)
    base = tl.program_id(1).to(tl.int64) * WORDS * SIZE
    mine = block * OWN + tl.arange(0, OWN)
    numbers = tl.arange(0, SIZE)
    own = tl.load(q + base + mine[:, None] * SIZE + numbers[None, :])
    highest = tl.full([OWN], float("-inf"), tl.float32)
    total = tl.zeros([OWN], tl.float32)
    read = tl.zeros([OWN, SIZE], tl.float32)
    for first in range(0, WORDS, OTHERS):
        theirs = first + tl.arange(0, OTHERS)
        key = tl.load(k + base + theirs[None, :] * SIZE + numbers[:, None])
        value = tl.load(v + base + theirs[:, None] * SIZE + numbers[None, :])
        score = tl.dot(own, key) * scale
        score = tl.where(mine[:, None] >= theirs[None, :], score, float("-inf"))
        now = tl.maximum(highest, tl.max(score, 1))
        weight = tl.exp2(score - now[:, None])
        fade = tl.exp2(highest - now)
        total = total * fade + tl.sum(weight, 1)
        read = read * fade[:, None] + tl.dot(weight.to(value.dtype), value)
        highest = now
    tl.store(out + base + mine[:, None] * SIZE + numbers[None, :], (read / total[:, None]).to(out.dtype.element_ty))


def attention(q, k, v):
    out = torch.empty_like(q)
    grid = (WORDS // 128, q.shape[0] * q.shape[1])
    attend[grid](q, k, v, out, 1.4426950408889634 / math.sqrt(SIZE), WORDS, SIZE, 128, 64, num_warps=4, num_stages=3)
    return out


class Reader:
    def __init__(self):
        width = HEADS * SIZE
        self.into = torch.randn(width, 3 * width, device="cuda", dtype=torch.float16) / width**0.5
        self.back = torch.randn(width, width, device="cuda", dtype=torch.float16) / width**0.5

    def read(self, words):
        parts = (words @ self.into).view(CASES, WORDS, 3, HEADS, SIZE).permute(2, 0, 3, 1, 4).contiguous()
        seen = attention(parts[0], parts[1], parts[2])
        return words + seen.transpose(1, 2).reshape(CASES, WORDS, -1) @ self.back


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    torch.manual_seed(11)
    reader = Reader()
    words = torch.randn(CASES, WORDS, HEADS * SIZE, device="cuda", dtype=torch.float16)
    for _ in range(3):
        read = reader.read(words)
    torch.cuda.synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        read = reader.read(words)
        steps += 1
        if steps % 20 == 0:
            torch.cuda.synchronize()
        if steps % 400 == 0:
            print(f"{steps} records: {read.float().abs().mean().item():.4f}")
    torch.cuda.synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
