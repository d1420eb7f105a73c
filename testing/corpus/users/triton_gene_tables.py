"""Brings the genes of many cells to one scale, and scores the cells by sets of genes."""

import argparse
import time

import torch
import triton
import triton.language as tl

CELLS, GENES, SETS = 8192, 16384, 32


@triton.jit
def same_scale(counts, scaled, genes, CELLS: tl.constexpr):
    gene = tl.program_id(0)
    places = tl.arange(0, CELLS) * genes + gene
    values = tl.log(1.0 + tl.load(counts + places))
    mean = tl.sum(values, 0) / CELLS
    apart = values - mean
    spread = tl.sqrt(tl.sum(apart * apart, 0) / CELLS) + 1e-6
    tl.store(scaled + places, apart / spread)


@triton.jit
def same_scale_side_by_side(counts, scaled, genes, CELLS: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr):
    gene = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    rows = tl.arange(0, ROWS)
    sums = tl.zeros((ROWS, WIDE), tl.float32)
    squares = tl.zeros((ROWS, WIDE), tl.float32)
    for first in range(0, CELLS, ROWS):
        places = (first + rows)[:, None] * genes + gene[None, :]
        values = tl.log(1.0 + tl.load(counts + places))
        sums += values
        squares += values * values
    mean = tl.sum(sums, 0) / CELLS
    spread = tl.sqrt(tl.maximum(tl.sum(squares, 0) / CELLS - mean * mean, 0.0)) + 1e-6
    for first in range(0, CELLS, ROWS):
        places = (first + rows)[:, None] * genes + gene[None, :]
        values = tl.log(1.0 + tl.load(counts + places))
        tl.store(scaled + places, (values - mean[None, :]) / spread[None, :])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(14)
    batches = [torch.empty(CELLS, GENES, device="cuda").exponential_(0.4) for _ in range(3)]
    scaled = torch.empty(CELLS, GENES, device="cuda")
    sets = (torch.rand(GENES, SETS, device="cuda") < 0.01).float()

    def score(batch):
        if args.remedied:
            same_scale_side_by_side[(GENES // 32,)](batches[batch], scaled, GENES, CELLS, 64, 32, num_warps=8)
        else:
            same_scale[(GENES,)](batches[batch], scaled, GENES, CELLS, num_warps=8)
        return scaled @ sets

    for batch in range(3):
        scores = score(batch)
    torch.cuda.synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        scores = score(steps % 3)
        steps += 1
        if steps % 100 == 0:
            print(f"{steps * CELLS} cells: set 0 reaches {scores[:, 0].max().item():.2f}")
    torch.cuda.synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
