"""Moss spreads over a wide roof: its spores fly a little further each day, and it grows as warm as the season is."""

import argparse
import time

import cupy as cp
import numpy as np

ROWS, COLUMNS, SEASONS = 4096, 4096, 40
FLIGHT, STEP, RATE = 1.6, 0.05, 0.9


def spread():
    down = cp.fft.fftfreq(ROWS)[:, None]
    across = cp.fft.rfftfreq(COLUMNS)[None, :]
    return cp.exp(-2 * (cp.pi * FLIGHT) ** 2 * (down**2 + across**2)).astype(cp.float32)


def growth():
    turn = np.linspace(0, 2 * np.pi, SEASONS, endpoint=False)
    return STEP * RATE * (1 + 0.4 * np.sin(turn))


class Roof:
    def __init__(self, remedied):
        random = cp.random.default_rng(46)
        self.moss = (random.random((ROWS, COLUMNS), dtype=cp.float32) > 0.999).astype(cp.float32)
        self.spread = spread()
        self.growth = growth()
        if remedied:
            self.growth = self.growth.tolist()

    def spores(self):
        return cp.fft.irfft2(cp.fft.rfft2(self.moss) * self.spread)

    def live(self, day):
        moss = self.spores()
        self.moss = moss + self.growth[day % SEASONS] * (moss * (1 - moss))
        self.moss[:: ROWS // 8] = 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    roof = Roof(args.remedied)
    for day in range(5):
        roof.live(day)
    cp.cuda.Device().synchronize()
    began, days = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        roof.live(days)
        days += 1
        if days % 100 == 0:
            print(f"day {days}: {float(roof.moss.mean()):.2%} of the roof")
    cp.cuda.Device().synchronize()
    print(f"{days / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
