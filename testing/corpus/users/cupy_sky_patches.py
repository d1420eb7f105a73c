"""Looks for faint galaxies: patches of the sky are written as sums of patterns, and the weak patterns are dropped."""

import argparse
import time

import cupy as cp

PATCHES, SIDE, KEPT = 2048, 80, 64


def patterns(side):
    places = cp.arange(side, dtype=cp.float32)
    waves = cp.cos(cp.pi / side * (places[:, None] + 0.5) * places[None, :])
    waves *= (2 / side) ** 0.5
    waves[:, 0] *= 0.5**0.5
    return cp.ascontiguousarray(waves.astype(cp.float32)[:, :KEPT])


def sky(random):
    patches = random.standard_normal((PATCHES, SIDE, SIDE), dtype=cp.float32)
    places = cp.linspace(-1, 1, SIDE, dtype=cp.float32)
    galaxy = cp.exp(-12 * (places[:, None] ** 2 + 2 * places[None, :] ** 2))
    patches[::7] += 3 * galaxy
    return patches


class Search:
    def __init__(self, remedied):
        self.patterns = patterns(SIDE)
        self.optimize = remedied

    def bright(self, patches):
        found = cp.einsum("nij,ik,jl->nkl", patches, self.patterns, self.patterns, optimize=self.optimize)
        found = cp.where(cp.abs(found) > 3, found, 0)
        return (found * found).sum((1, 2))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--remedied", action="store_true")
    args = parser.parse_args()
    random = cp.random.default_rng(45)
    fields = [sky(random) for _ in range(4)]
    search = Search(args.remedied)
    for number in range(3):
        bright = search.bright(fields[number])
    cp.cuda.Device().synchronize()
    began, searched = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        bright = search.bright(fields[searched % 4])
        searched += 1
        if searched % 50 == 0:
            print(f"field {searched}: {int((bright > 300).sum())} patches with something in them")
    cp.cuda.Device().synchronize()
    print(f"{searched / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
