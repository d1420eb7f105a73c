"""Dunes that the wind moves: sand is lifted, flies a little way and settles, on a wide field, hour by hour."""

import argparse
import math
import time

import numpy as np
from numba import cuda

ROWS, COLUMNS = 4096, 4096
LIFT, SLIDE = np.float32(0.05), np.float32(0.12)


@cuda.jit
def blow(sand, flying, wind, lift):
    column, row = cuda.grid(2)
    rows, columns = sand.shape
    if row < rows and column < columns:
        behind = column - 1 if column > 0 else columns - 1
        shade = max(np.float32(0), sand[row, behind] - sand[row, column])
        flying[row, column] = lift * wind[row, column] * sand[row, column] / (np.float32(1) + shade)


@cuda.jit
def settle(sand, flying, settled, slide):
    column, row = cuda.grid(2)
    rows, columns = sand.shape
    if row < rows and column < columns:
        behind = column - 2 if column > 1 else columns + column - 2
        above = row - 1 if row > 0 else rows - 1
        below = row + 1 if row < rows - 1 else 0
        here = sand[row, column] - flying[row, column] + flying[row, behind]
        sides = sand[above, column] + sand[below, column] - np.float32(2) * sand[row, column]
        settled[row, column] = here + slide * sides


class Dunes:
    def __init__(self):
        random = np.random.default_rng(11)
        self.sand = 1 + 0.1 * random.random((ROWS, COLUMNS), dtype=np.float32)
        self.wind = 0.5 + 0.5 * random.random((ROWS, COLUMNS), dtype=np.float32)
        self.flying = np.zeros_like(self.sand)
        self.settled = np.zeros_like(self.sand)
        self.block = (32, 8)
        self.grid = (math.ceil(COLUMNS / 32), math.ceil(ROWS / 8))

    def hour(self):
        blow[self.grid, self.block](self.sand, self.flying, self.wind, LIFT)
        settle[self.grid, self.block](self.sand, self.flying, self.settled, SLIDE)
        self.sand, self.settled = self.settled, self.sand

    def height(self):
        return float(np.asarray(self.sand[ROWS // 2, :100]).mean())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    dunes = Dunes()
    for _ in range(2):
        dunes.hour()
    cuda.synchronize()
    began, hours = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        dunes.hour()
        hours += 1
        if hours % 10 == 0:
            cuda.synchronize()
        if hours % 1000 == 0:
            print(f"hour {hours}: {dunes.height():.4f} m")
    cuda.synchronize()
    print(f"{hours / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
