"""Snow on mountains: what stations measure comes to a grid hour by hour, and melts, drifts and settles there."""

import argparse
import time

import cupy as cp
import numpy as np
from scipy.interpolate import griddata

STATIONS, ROWS, COLUMNS = 8_000, 128, 128
MELT, DRIFT = 0.02, 0.1


class Stations:
    def __init__(self):
        random = np.random.default_rng(11)
        self.places = random.uniform(0, 1, (STATIONS, 2))
        self.places[:4] = [(0, 0), (0, 1), (1, 0), (1, 1)]
        self.height = np.sin(5 * self.places[:, 0]) + np.cos(4 * self.places[:, 1])
        self.random = random

    def measure(self, hour):
        storm = np.exp(-20 * ((self.places[:, 0] - 0.5 - 0.3 * np.sin(0.1 * hour)) ** 2 + (self.places[:, 1] - 0.5) ** 2))
        return storm * (1 + 0.3 * self.height) + 0.02 * self.random.standard_normal(STATIONS)


class Mountains:
    def __init__(self, stations):
        self.stations = stations
        down, across = np.meshgrid(np.linspace(0, 1, ROWS), np.linspace(0, 1, COLUMNS), indexing="ij")
        self.grid = np.stack([down.ravel(), across.ravel()], axis=1)
        self.snow = cp.zeros((ROWS, COLUMNS), dtype=cp.float32)

    def on_grid(self, values):
        return griddata(self.stations.places, values, self.grid, method="linear").reshape(ROWS, COLUMNS)

    def live(self, hour):
        fallen = cp.asarray(self.on_grid(self.stations.measure(hour)).astype(np.float32))
        snow = self.snow + cp.maximum(fallen, 0)
        for _ in range(8):
            padded = cp.pad(snow, 1, mode="edge")
            around = padded[2:, 1:-1] + padded[:-2, 1:-1] + padded[1:-1, 2:] + padded[1:-1, :-2]
            snow = snow + DRIFT * (around / 4 - snow)
        self.snow = snow * (1 - MELT)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    mountains = Mountains(Stations())
    for hour in range(2):
        mountains.live(hour)
    cp.cuda.Device().synchronize()
    began, hours = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        mountains.live(hours)
        hours += 1
        if hours % 10 == 0:
            print(f"hour {hours}: {float(mountains.snow.mean()):.3f} m of snow")
    cp.cuda.Device().synchronize()
    print(f"{hours / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
