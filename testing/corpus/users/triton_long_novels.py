"""Goes on with a novel, word by word: each new word looks back at all words before it, in each layer and head."""

import argparse
import time

import torch
import triton
import triton.language as tl

LAYERS, HEADS, SIZE, WORDS = 10, 16, 128, 98304


@triton.jit
def look_back(queries, keys, values, seen, words, scale, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    head = tl.program_id(0)
    across = tl.arange(0, SIZE)
    query = tl.load(queries + head * SIZE + across).to(tl.float32) * scale
    highest = -float("inf")
    weight = 0.0
    total = tl.zeros((SIZE,), tl.float32)
    for first in range(0, words, BLOCK):
        places = (head * words + first + tl.arange(0, BLOCK))[:, None] * SIZE + across[None, :]
        scores = tl.sum(tl.load(keys + places).to(tl.float32) * query[None, :], 1)
        higher = tl.maximum(highest, tl.max(scores, 0))
        fades = tl.exp(highest - higher)
        shares = tl.exp(scores - higher)
        total = total * fades + tl.sum(tl.load(values + places).to(tl.float32) * shares[:, None], 0)
        weight = weight * fades + tl.sum(shares, 0)
        highest = higher
    tl.store(seen + head * SIZE + across, (total / weight).to(tl.float16))


@triton.jit
def look_back_from(queries, keys, values, totals, weights, heights, words, stretch, scale, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    head, part = tl.program_id(0), tl.program_id(1)
    across = tl.arange(0, SIZE)
    query = tl.load(queries + head * SIZE + across).to(tl.float32) * scale
    highest = -float("inf")
    weight = 0.0
    total = tl.zeros((SIZE,), tl.float32)
    for first in range(part * stretch, (part + 1) * stretch, BLOCK):
        places = (head * words + first + tl.arange(0, BLOCK))[:, None] * SIZE + across[None, :]
        scores = tl.sum(tl.load(keys + places).to(tl.float32) * query[None, :], 1)
        higher = tl.maximum(highest, tl.max(scores, 0))
        fades = tl.exp(highest - higher)
        shares = tl.exp(scores - higher)
        total = total * fades + tl.sum(tl.load(values + places).to(tl.float32) * shares[:, None], 0)
        weight = weight * fades + tl.sum(shares, 0)
        highest = higher
    row = head * tl.num_programs(1) + part
    tl.store(totals + row * SIZE + across, total)
    tl.store(weights + row, weight)
    tl.store(heights + row, highest)


@triton.jit
def gather(totals, weights, heights, seen, SIZE: tl.constexpr, PARTS: tl.constexpr):
    head = tl.program_id(0)
    across, parts = tl.arange(0, SIZE), tl.arange(0, PARTS)
    height = tl.load(heights + head * PARTS + parts)
    shares = tl.exp(height - tl.max(height, 0))
    weight = tl.sum(shares * tl.load(weights + head * PARTS + parts), 0)
    rows = (head * PARTS + parts)[:, None] * SIZE + across[None, :]
    total = tl.sum(shares[:, None] * tl.load(totals + rows), 0)
    tl.store(seen + head * SIZE + across, (total / weight).to(tl.float16))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    device = {"device": "cuda", "dtype": torch.float16}
    keys, values = (torch.randn(LAYERS, HEADS, WORDS, SIZE, **device) for _ in range(2))
    mixes = torch.randn(LAYERS, HEADS * SIZE, HEADS * SIZE, **device) / (HEADS * SIZE) ** 0.5
    seen = torch.empty(1, HEADS * SIZE, **device)
    parts, scale = 32, SIZE**-0.5
    totals = torch.empty(HEADS, parts, SIZE, device="cuda")
    weights, heights = torch.empty(2, HEADS, parts, device="cuda")
    word = torch.randn(1, HEADS * SIZE, **device)

    def next_word(word):
        for layer in range(LAYERS):
            k, v = keys[layer], values[layer]
            if args.remedied:
                look_back_from[(HEADS, parts)](word, k, v, totals, weights, heights, WORDS, WORDS // parts, scale, SIZE, 64, num_warps=4)
                gather[(HEADS,)](totals, weights, heights, seen, SIZE, parts)
            else:
                look_back[(HEADS,)](word, k, v, seen, WORDS, scale, SIZE, 64, num_warps=4)
            word = torch.tanh(word + seen @ mixes[layer])
        return word

    for _ in range(3):
        word = next_word(word)
    torch.cuda.synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        word = next_word(word)
        steps += 1
        if steps % 50 == 0:
            print(f"word {steps}: {word[0, :4].tolist()}")
    torch.cuda.synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
