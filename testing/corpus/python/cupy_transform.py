"""Convolution of large pictures in CuPy by Fourier transforms: a few kernels that keep memory busy.

Cause: none: memory is as busy as it can be. Remedy: none.
"""

import cupy

from pairs import main


def build(remedy):
    x = cupy.random.rand(16, 4096, 4096, dtype=cupy.float32)
    kernel = cupy.fft.rfft2(cupy.random.rand(4096, 4096, dtype=cupy.float32))

    def step():
        spectrum = cupy.fft.rfft2(x)
        spectrum *= kernel
        return cupy.fft.irfft2(spectrum)

    return step


if __name__ == "__main__":
    main(build, cupy.cuda.Device().synchronize)
