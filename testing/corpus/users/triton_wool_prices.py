"""Prices of wool at many thousands of auctions: running means and spreads of each lot, brought up to date day by day in one kernel."""

import argparse
import time

import torch
import triton
import triton.language as tl

LOTS, DAYS = 1 << 28, 4
RATE = 0.06


@triton.jit
def update(prices, means, spreads, rate, BLOCK: tl.constexpr):
    lots = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    price = tl.load(prices + lots)
    mean = tl.load(means + lots)
    spread = tl.load(spreads + lots)
    apart = price - mean
    mean += rate * apart
    spread = (1 - rate) * (spread + rate * apart * apart)
    tl.store(means + lots, mean)
    tl.store(spreads + lots, spread)


class Auctions:
    def __init__(self):
        self.days = [torch.rand(LOTS, device="cuda").mul_(3).add_(4 + day) for day in range(DAYS)]
        self.means = torch.full((LOTS,), 5.0, device="cuda")
        self.spreads = torch.ones(LOTS, device="cuda")

    def close(self, day):
        update[(LOTS // 2048,)](self.days[day % DAYS], self.means, self.spreads, RATE, 2048, num_warps=8)

    def report(self, day):
        mean, spread = self.means[:1000].mean().item(), self.spreads[:1000].mean().item()
        print(f"day {day}: mean {mean:.3f}, spread {spread**0.5:.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    torch.manual_seed(11)
    auctions = Auctions()
    for day in range(5):
        auctions.close(day)
    torch.cuda.synchronize()
    began, days = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        auctions.close(days)
        days += 1
        if days % 50 == 0:
            torch.cuda.synchronize()
        if days % 1000 == 0:
            auctions.report(days)
    torch.cuda.synchronize()
    print(f"{days / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
