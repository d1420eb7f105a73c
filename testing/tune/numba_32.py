"""A numba kernel in blocks of 32 threads: an SM holds 32 blocks, half of its threads."""

import zlib

import numpy
from numba import cuda


@cuda.jit
def wave(to, one, other, n):
    """Adds two waves, each thread one element."""
    i = cuda.grid(1)
    if i < n:
        to[i] = one[i] * other[i] + one[i]


count = (4 << 20) + 13
start = numpy.arange(count, dtype=numpy.float32)
one, other = cuda.to_device(numpy.sin(start * 1e-3)), cuda.to_device(numpy.cos(start * 1.7e-3))
to = cuda.device_array_like(one)
for _ in range(1500):
    wave[(count + 31) // 32, 32](to, one, other, count)
    one, to = to, one
print(f"{zlib.crc32(one.copy_to_host().tobytes()):08x}")
