"""Element-wise kernels, a reduction and a raw kernel of CuPy: `code_cupy.py [SIDE]`."""

import sys

import cupy

side = int(sys.argv[1]) if len(sys.argv) > 1 else 256
x = cupy.arange(side * side, dtype=cupy.float32).reshape(side, side)
y = cupy.ones((side, side), dtype=cupy.float32)
axpy = cupy.RawKernel(
    """extern "C" __global__ void axpy(float a, const float* x, float* y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] += a * x[i];
    }""",
    "axpy",
)
for _ in range(10):
    total = (x * 2 + y).sum()
    turned = (x.T + y).copy()
    axpy((side * side // 256,), (256,), (cupy.float32(2), x, y, cupy.int32(side * side)))
print(float(total), float(y.sum()))
