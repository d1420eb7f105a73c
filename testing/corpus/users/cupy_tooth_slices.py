"""A jaw in three dimensions: a dentist turns a plane through it, and sees the slice, smooth between the scanner's points."""

import argparse
import time

import cupy as cp
import numpy as np
from cupyx.scipy import ndimage

SIDE, ROWS, COLUMNS = 384, 768, 768


def scanned_jaw():
    at = cp.linspace(-1, 1, SIDE, dtype=cp.float32)
    x, y, z = at[:, None, None], at[None, :, None], at[None, None, :]
    bone = cp.exp(-((cp.sqrt(x * x + y * y) - 0.6) ** 2) * 20 - z * z * 4)
    teeth = cp.maximum(0, cp.cos(24 * cp.arctan2(y, x)) * bone - 0.3)
    return (bone + teeth).astype(cp.float32)


class Viewer:
    def __init__(self, jaw):
        self.jaw = jaw
        down, across = cp.meshgrid(
            cp.linspace(-0.9, 0.9, ROWS, dtype=cp.float32), cp.linspace(-0.9, 0.9, COLUMNS, dtype=cp.float32), indexing="ij"
        )
        self.down, self.across = down, across

    def plane(self, angle):
        """Where in the jaw each point of the picture lies."""
        c, s = np.float32(np.cos(angle)), np.float32(np.sin(angle))
        where = cp.stack([self.down * c, self.down * s, self.across])
        return (where + 1) * np.float32((SIDE - 1) / 2)

    def slice(self, angle):
        picture = ndimage.map_coordinates(self.jaw, self.plane(angle), order=3, mode="mirror")
        low, high = picture.min(), picture.max()
        return (picture - low) / (high - low + 1e-6)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    viewer = Viewer(scanned_jaw())
    for number in range(3):
        picture = viewer.slice(0.1 * number)
    cp.cuda.Device().synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        picture = viewer.slice(0.01 * steps)
        steps += 1
        if steps % 10 == 0:
            cp.cuda.Device().synchronize()
        if steps % 100 == 0:
            print(f"slice {steps}: {float(picture.mean()):.4f}")
    cp.cuda.Device().synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
