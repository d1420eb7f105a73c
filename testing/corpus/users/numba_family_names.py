"""Family names in old registers: how many letters must change to make one name of another, for all pairs of them."""

import argparse
import time

import numpy as np
from numba import cuda, int32

LETTERS, NAMES, ASKED, THREADS = 31, 8192, 256, 128
WIDTH = LETTERS + 1


@cuda.jit
def distances(asked, names, changed):
    row = cuda.shared.array((THREADS, WIDTH), int32)
    me = cuda.threadIdx.x
    other = cuda.blockIdx.x * THREADS + me
    own = cuda.blockIdx.y
    for j in range(WIDTH):
        row[me, j] = j
    for i in range(LETTERS):
        letter = asked[own, i]
        corner = row[me, 0]
        left = int32(i + 1)
        row[me, 0] = left
        for j in range(LETTERS):
            above = row[me, j + 1]
            if names[j, other] != letter:
                corner = int32(corner + 1)
            here = min(corner, int32(min(above, left) + 1))
            row[me, j + 1] = here
            corner = above
            left = here
    changed[own, other] = left


@cuda.jit
def nearest(changed, found):
    other = cuda.grid(1)
    if other < changed.shape[1]:
        best = 0
        for own in range(1, changed.shape[0]):
            if changed[own, other] < changed[best, other]:
                best = own
        found[other] = best


class Register:
    def __init__(self):
        random = np.random.default_rng(12)
        names = random.integers(0, 26, (NAMES, LETTERS), dtype=np.int8)
        self.names = cuda.to_device(np.ascontiguousarray(names.T))
        asked = [names[random.integers(0, NAMES, ASKED)] for _ in range(8)]
        self.asked = [cuda.to_device(np.ascontiguousarray(part)) for part in asked]
        self.changed = cuda.device_array((ASKED, NAMES), dtype=np.int32)
        self.found = cuda.device_array(NAMES, dtype=np.int32)

    def ask(self, number):
        distances[(NAMES // THREADS, ASKED), THREADS](self.asked[number % len(self.asked)], self.names, self.changed)
        nearest[NAMES // THREADS, THREADS](self.changed, self.found)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    register = Register()
    for number in range(3):
        register.ask(number)
    cuda.synchronize()
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        register.ask(steps)
        steps += 1
        if steps % 10 == 0:
            cuda.synchronize()
        if steps % 200 == 0:
            print(f"{steps * ASKED} names: the first is most like name {register.found.copy_to_host()[0]}")
    cuda.synchronize()
    print(f"{steps / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
