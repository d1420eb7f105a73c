"""A kernel in CuPy whose source holds the time as a constant.

Cause: NVRTC compiles the kernel anew in each step. Remedy: the time is an argument.
"""

import itertools
import random

import cupy

from pairs import main

SOURCE = """
extern "C" __global__ void wave(float *y, int n{parameter}) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = sinf(i * 0.001f + {time});
}}
"""
times = itertools.count(random.random(), 0.01)


def build(remedy):
    n = 1 << 22
    y = cupy.empty(n, cupy.float32)
    once = cupy.RawKernel(SOURCE.format(parameter=", float t", time="t"), "wave")

    def step():
        t = next(times)
        if remedy:
            return once(((n + 255) // 256,), (256,), (y, cupy.int32(n), cupy.float32(t)))
        kernel = cupy.RawKernel(SOURCE.format(parameter="", time=f"{t:.6f}f"), "wave")
        kernel(((n + 255) // 256,), (256,), (y, cupy.int32(n)))

    return step


if __name__ == "__main__":
    main(build, cupy.cuda.Device().synchronize)
