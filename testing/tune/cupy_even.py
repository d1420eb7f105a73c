"""A CuPy kernel whose blocks of 256 threads cost nothing: nothing is to gain. CUPY_COMPILE_WITH_PTX=1 has CuPy give the driver PTX."""

import zlib

import cupy

KERNEL = cupy.RawKernel(
    """
extern "C" __global__ void scale(float *to, const float *from, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        to[i] = 0.75f * from[i] + 0.125f;
    }
}
""",
    "scale",
)

count = (16 << 20) + 13
one = cupy.sin(cupy.arange(count, dtype=cupy.float32) * 1e-3)
to = cupy.empty_like(one)
for _ in range(2000):
    KERNEL(((count + 255) // 256,), (256,), (to, one, cupy.int32(count)))
    one, to = to, one
print(f"{zlib.crc32(one.get().tobytes()):08x}")
