"""A helper calls cuBLAS for a product: it creates a handle, multiplies, and destroys the handle.

Cause: a handle is made for each product. Remedy: one handle.
"""

import cupy
import numpy as np
from cupy_backends.cuda.libs import cublas

from pairs import main


def build(remedy):
    n = 1024
    a, b, c = cupy.random.rand(3, n, n, dtype=cupy.float32)
    one, zero = np.array(1, np.float32), np.array(0, np.float32)
    once = cublas.create()

    def multiply(handle):
        stream = cupy.cuda.get_current_stream()
        cublas.setStream(handle, stream.ptr)
        cublas.sgemm(handle, 0, 0, n, n, n, one.ctypes.data, b.data.ptr, n, a.data.ptr, n, zero.ctypes.data, c.data.ptr, n)

    def step():
        handle = once if remedy else cublas.create()
        multiply(handle)
        if not remedy:
            cublas.destroy(handle)

    return step


if __name__ == "__main__":
    main(build, cupy.cuda.Device().synchronize)
