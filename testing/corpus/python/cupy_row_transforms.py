"""Fourier transforms of 512 rows in CuPy, one row after the other.

Cause: launch-bound loop over rows. Remedy: one batched transform.
"""

import cupy

from pairs import main


def build(remedy):
    x = cupy.random.rand(512, 4096, dtype=cupy.float32).astype(cupy.complex64)
    window = cupy.hanning(4096).astype(cupy.float32)

    def step():
        if remedy:
            return cupy.abs(cupy.fft.fft(x * window, axis=1))
        return cupy.stack([cupy.abs(cupy.fft.fft(row * window)) for row in x])

    return step


if __name__ == "__main__":
    main(build, cupy.cuda.Device().synchronize)
