"""A filter in CuPy between arrays of NumPy: the picture goes to the device and back in every step.

Cause: copies from and to pageable memory on the critical path. Remedy: the arrays stay on the device.
"""

import cupy
import numpy as np

from pairs import main


def build(remedy):
    host = np.random.default_rng(1).random((4096, 4096), dtype=np.float32)
    own = cupy.asarray(host)

    def smooth(x):
        return (x[:-2] + 2 * x[1:-1] + x[2:]) * cupy.float32(0.25)

    def step():
        if remedy:
            return smooth(own)
        return cupy.asnumpy(smooth(cupy.asarray(host)))

    return step


if __name__ == "__main__":
    main(build, cupy.cuda.Device().synchronize)
