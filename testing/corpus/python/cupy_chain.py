"""A formula over large arrays in CuPy: each operator is a kernel that reads and writes everything.

Cause: an expression of many kernels. Remedy: cupy.fuse.
"""

import cupy

from pairs import main


def formula(x, y):
    return cupy.exp(-(x * x + y * y) * 0.5) * (1.0 + 0.3 * x - 0.1 * y * y) + cupy.sqrt(cupy.abs(x - y))


fused = cupy.fuse(formula)


def build(remedy):
    x, y = cupy.random.rand(2, 1 << 25, dtype=cupy.float32)

    def step():
        return (fused if remedy else formula)(x, y)

    return step


if __name__ == "__main__":
    main(build, cupy.cuda.Device().synchronize)
