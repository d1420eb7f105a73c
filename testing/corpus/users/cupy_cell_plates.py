"""Counts the bright cells on plates under a microscope, whose lamp lights each plate unevenly."""

import argparse
import time

import cupy as cp
from cupyx.scipy import ndimage

HEIGHT, WIDTH, SIGMA = 2160, 2560, 7.0


def bell(sigma):
    reach = int(4 * sigma + 0.5)
    places = cp.arange(-reach, reach + 1, dtype=cp.float32)
    heights = cp.exp(-0.5 * (places / sigma) ** 2)
    return heights / heights.sum()


def plate(random):
    picture = random.standard_normal((HEIGHT, WIDTH), dtype=cp.float32) * 2
    rows = random.integers(8, HEIGHT - 8, 900)
    columns = random.integers(8, WIDTH - 8, 900)
    for shift in range(-3, 4):
        picture[rows + shift, columns] += 30
        picture[rows, columns + shift] += 30
    lamp = cp.linspace(20, 60, WIDTH, dtype=cp.float32)
    return picture + lamp


class Counter:
    def __init__(self, remedied):
        self.line = bell(SIGMA)
        self.spot = cp.outer(self.line, self.line)
        self.remedied = remedied

    def background(self, picture):
        if self.remedied:
            across = ndimage.convolve1d(picture, self.line, axis=1, mode="nearest")
            return ndimage.convolve1d(across, self.line, axis=0, mode="nearest")
        return ndimage.convolve(picture, self.spot, mode="nearest")

    def bright(self, picture):
        clear = picture - self.background(picture)
        return (clear > 4 * clear.std()).sum()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    random = cp.random.default_rng(4)
    plates = [plate(random) for _ in range(4)]
    counter = Counter(args.remedied)
    for number in range(3):
        bright = counter.bright(plates[number])
    cp.cuda.Device().synchronize()
    began, counted = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        bright = counter.bright(plates[counted % 4])
        counted += 1
        if counted % 25 == 0:
            print(f"plate {counted}: {int(bright)} bright pixels")
    cp.cuda.Device().synchronize()
    print(f"{counted / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
