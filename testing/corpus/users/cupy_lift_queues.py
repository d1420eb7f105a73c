"""How long do people wait for lifts? Plays many mornings in many towers; each morning can be played again by its number."""

import argparse
import time

import cupy as cp

TOWERS, MINUTES, LIFTS = 4096, 90, 6


class Mornings:
    def __init__(self, remedied):
        self.again = not remedied
        self.rush = cp.exp(-(((cp.arange(MINUTES, dtype=cp.float32) - 40) / 18) ** 2))
        self.size = cp.linspace(4, 24, TOWERS, dtype=cp.float32)
        cp.random.seed(47)

    def arrivals(self):
        noise = cp.random.standard_normal((TOWERS, MINUTES), dtype=cp.float32)
        usual = self.size[:, None] * self.rush[None, :]
        return cp.maximum(usual + cp.sqrt(usual) * noise, 0)

    def carried(self):
        broken = cp.random.random_sample((TOWERS, LIFTS), dtype=cp.float32) < 0.02
        return 0.7 * self.size * (LIFTS - broken.sum(1)) / LIFTS

    def play(self, number):
        if self.again:
            cp.random.seed(number)
        came = cp.cumsum(self.arrivals(), axis=1)
        gone = self.carried()[:, None] * cp.arange(1, MINUTES + 1, dtype=cp.float32)
        ahead = came - gone
        waiting = ahead - cp.minimum(ahead.min(axis=1, keepdims=True), 0)
        return waiting.mean(1) / self.size


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    mornings = Mornings(args.remedied)
    total = cp.zeros(TOWERS, dtype=cp.float32)
    for number in range(3):
        total += mornings.play(number)
    cp.cuda.Device().synchronize()
    began, played = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        total += mornings.play(played + 3)
        played += 1
        if played % 100 == 0:
            print(f"morning {played}: {float(total.mean()) / (played + 3):.3f} minutes")
    cp.cuda.Device().synchronize()
    print(f"{played / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
