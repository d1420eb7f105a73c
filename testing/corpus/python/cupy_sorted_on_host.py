"""Percentiles of a field in CuPy are taken with NumPy.

Cause: the field is copied to the host and sorted there. Remedy: cupy.percentile.
"""

import cupy
import numpy as np

from pairs import main


def build(remedy):
    field = cupy.random.rand(2000, 2000).astype(cupy.float32)

    def step():
        moved = cupy.sin(field * cupy.float32(3))
        if remedy:
            return cupy.clip(moved, *cupy.percentile(moved, cupy.asarray([1.0, 99.0])))
        low, high = np.percentile(cupy.asnumpy(moved), [1.0, 99.0])
        return cupy.clip(moved, low, high)

    return step


if __name__ == "__main__":
    main(build, cupy.cuda.Device().synchronize)
