"""Takes the still ground out of series of satellite images, so that only what moves (clouds) is left."""

import argparse
import time

import cupy as cp

ROWS, COLUMNS, IMAGES, STILL = 160, 180, 32, 3


def ground(random):
    y, x = cp.meshgrid(cp.linspace(0, 9, ROWS), cp.linspace(0, 9, COLUMNS), indexing="ij")
    hills = cp.sin(x) * cp.cos(1.3 * y) + 0.5 * cp.sin(2.1 * x + y)
    return (0.3 * hills + 0.05 * random.standard_normal((ROWS, COLUMNS))).astype(cp.float32)


def series(random, still):
    brightness = 1 + 0.2 * random.standard_normal(IMAGES, dtype=cp.float32)
    images = still[:, :, None] * brightness
    for image in range(IMAGES):
        row = int(random.integers(ROWS - 40))
        images[row : row + 40, 4 * image : 4 * image + 40, image] += 0.6
    return cp.ascontiguousarray(images.reshape(ROWS * COLUMNS, IMAGES))


class Separator:
    def __init__(self, **options):
        self.options = options

    def moving(self, pixels):
        left, strengths, right = cp.linalg.svd(pixels, **self.options)
        still = (left[:, :STILL] * strengths[:STILL]) @ right[:STILL]
        return pixels - still


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    random = cp.random.default_rng(8)
    still = ground(random)
    days = [series(random, still) for _ in range(6)]
    separator = Separator(**({"full_matrices": False} if args.remedied else {}))
    cover = cp.zeros(IMAGES, dtype=cp.float32)
    for day in range(3):
        cover += (separator.moving(days[day]) > 0.3).mean(0)
    cp.cuda.Device().synchronize()
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        cover = 0.9 * cover + 0.1 * (separator.moving(days[done % 6]) > 0.3).mean(0)
        done += 1
        if done % 20 == 0:
            print(f"{done} series: clouds cover {float(cover.mean()):.1%}")
    cp.cuda.Device().synchronize()
    print(f"{done / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
