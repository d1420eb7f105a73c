"""Prices options by simulated paths of a market, one day after the other."""

import argparse
import time

import cupy as cp

PATHS, DAYS, RATE, VOLATILITY = 4_000_000, 250, 0.02, 0.25


class Market:
    def __init__(self):
        self.spots = cp.full(PATHS, 100.0, dtype=cp.float32)
        self.averages = cp.zeros(PATHS, dtype=cp.float32)
        self.day = 0

    def next_day(self, shocks):
        step = 1.0 / DAYS
        drift = (RATE - 0.5 * VOLATILITY ** 2) * step
        moves = cp.exp(drift + VOLATILITY * step ** 0.5 * shocks)
        self.spots = cp.clip(self.spots * moves, 1e-2, 1e4)
        self.day += 1
        self.averages = self.averages + (self.spots - self.averages) / self.day

    def price(self, strike):
        paid = cp.maximum(self.averages - strike, 0)
        return float(paid.mean())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    random = cp.random.default_rng(3)
    pool = cp.get_default_memory_pool()
    market = Market()

    def simulate():
        nonlocal market
        shocks = random.standard_normal(PATHS, dtype=cp.float32)
        market.next_day(shocks)
        del shocks
        if not args.remedied:
            pool.free_all_blocks()
        if market.day == DAYS:
            print(f"price {market.price(100.0):.4f}")
            market = Market()

    for _ in range(10):
        simulate()
    cp.cuda.Device().synchronize()
    began, days = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        simulate()
        days += 1
    cp.cuda.Device().synchronize()
    print(f"{days / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
