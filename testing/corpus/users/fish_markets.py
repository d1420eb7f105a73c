"""Prices of fish at many harbours: what is paid at one follows what is paid where its traders also buy."""

import argparse
import time

import torch

HARBOURS, KINDS, ROUNDS = 6144, 512, 2


class Trade:
    """How much each harbour listens to each other one. Pairs that never trade have no entry."""

    def __init__(self, device):
        volume = torch.rand(HARBOURS, HARBOURS, device=device)
        trading = torch.rand(HARBOURS, HARBOURS, device=device) < 0.3
        volume = torch.where(trading, volume, 0)
        volume = volume / volume.sum(dim=1, keepdim=True)
        self.shares = volume.to_sparse_csr()

    def heard(self, prices):
        return self.shares @ prices


class Prices:
    def __init__(self, device):
        self.trade = Trade(device)
        self.now = 5 + 3 * torch.rand(HARBOURS, KINDS, device=device)
        self.catch = torch.rand(HARBOURS, KINDS, device=device)
        self.day = 0

    def next_day(self):
        self.day += 1
        season = 0.1 * torch.sin(self.catch * 6.28 + 0.02 * self.day)
        for _ in range(ROUNDS):
            self.now = 0.7 * self.now + 0.3 * self.trade.heard(self.now)
        self.now = self.now + season


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    torch.manual_seed(12)
    device = torch.device("cuda")
    prices = Prices(device)
    for _ in range(3):
        prices.next_day()
    torch.cuda.synchronize()
    began, days = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        prices.next_day()
        days += 1
        if days % 50 == 0:
            print(f"day {days}: {prices.now.mean().item():.3f} a kilogram")
    torch.cuda.synchronize()
    print(f"{days / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
