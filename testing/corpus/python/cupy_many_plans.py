"""Spectra of signals of 40 lengths in CuPy, one after the other, again and again.

Cause: CuPy keeps 16 plans, so that cuFFT makes one anew for each call. Remedy: a cache of 64 plans.
"""

import cupy

from pairs import main


def build(remedy):
    signals = [cupy.random.rand(64, 3000 + 16 * i).astype(cupy.complex64) for i in range(40)]
    cache = cupy.fft.config.get_plan_cache()

    def step():
        cache.set_size(64 if remedy else 16)
        return [cupy.abs(cupy.fft.fft(signal, axis=1)).max() for signal in signals]

    return step


if __name__ == "__main__":
    main(build, cupy.cuda.Device().synchronize)
