"""Five hundred products of small matrices in CuPy, one after the other.

Cause: launch-bound loop over matrices. Remedy: one batched product.
"""

import cupy

from pairs import main


def build(remedy):
    a, b = cupy.random.rand(2, 500, 64, 64, dtype=cupy.float32)

    def step():
        if remedy:
            return cupy.matmul(a, b)
        return [a[i] @ b[i] for i in range(len(a))]

    return step


if __name__ == "__main__":
    main(build, cupy.cuda.Device().synchronize)
