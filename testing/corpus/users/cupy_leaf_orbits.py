"""How orderly is a leaf's growth? Lyapunov's exponents of a map with two rates, for each pair of them."""

import argparse
import time

import cupy as cp

SIDE, ROUNDS = 2048, 600

SOURCE = r"""
extern "C" __global__ __launch_bounds__(256) void exponents(float *result, float low, float width, int side, int rounds) {
    int point = blockIdx.x * blockDim.x + threadIdx.x;
    float a = low + width * (point % side) / side, b = low + width * (point / side) / side;
    float leaf = 0.5f, sum = 0.0f;
    for (int round = 0; round < rounds; ++round) {
        leaf = a * leaf * (1.0f - leaf);
        float slope = fabsf(fmaf(-2.0f * a, leaf, a));
        leaf = b * leaf * (1.0f - leaf);
        slope *= fabsf(fmaf(-2.0f * b, leaf, b));
        sum += __log2f(slope + 1e-12f);
    }
    result[point] = 0.34657359f * sum / rounds;
}
"""


class Leaves:
    def __init__(self):
        self.kernel = cp.RawKernel(SOURCE, "exponents")
        self.result = cp.zeros(SIDE * SIDE, dtype=cp.float32)

    def grow(self, year):
        low = cp.float32(2.6 + 0.0001 * (year % 1000))
        self.kernel((SIDE * SIDE // 256,), (256,), (self.result, low, cp.float32(1.2), cp.int32(SIDE), cp.int32(ROUNDS)))

    def orderly(self):
        return float((self.result < 0).mean())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    leaves = Leaves()
    for year in range(5):
        leaves.grow(year)
    leaves.orderly()
    cp.cuda.Device().synchronize()
    began, years = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        leaves.grow(years)
        years += 1
        if years % 50 == 0:
            cp.cuda.Device().synchronize()
        if years % 1000 == 0:
            print(f"year {years}: {leaves.orderly():.2%} orderly")
    cp.cuda.Device().synchronize()
    print(f"{years / (time.perf_counter() - began):.3f} steps/s")


if __name__ == "__main__":
    main()
