"""CuPy's kernels and a few of Triton's."""

import cupy
import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + at, mask=at < columns, other=float("-inf"))
    value = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row * columns + at, value / tl.sum(value, axis=0), mask=at < columns)


x = torch.randn(4096, 1000, device="cuda")
out = torch.empty_like(x)
for _ in range(30):
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x, x, out, x.numel(), BLOCK=1024)
    softmax_kernel[(4096,)](x, out, 1000, BLOCK=1024)
torch.cuda.synchronize()

a = cupy.random.random((2048, 2048), dtype=cupy.float32)
d = a.astype(cupy.float64)
square = cupy.ElementwiseKernel("float32 x", "float32 y", "y = x * x", "square")
total = cupy.ReductionKernel("float32 x", "float32 y", "x * x", "a + b", "y = a", "0", "sum_of_squares")
raw = cupy.RawKernel('extern "C" __global__ void triple(float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 3; }', "triple")
for _ in range(20):
    (a + a) * 2 - cupy.sin(a)
    a @ a, d @ d
    cupy.sum(a, axis=0), a.max(), cupy.sort(a.ravel()[:65536]), cupy.cumsum(a[0]), cupy.argsort(a[:16], axis=1)
    a.T.copy(), a.astype(cupy.float16), cupy.where(a > 0.5, a, 0), cupy.exp(d), cupy.unique(cupy.arange(1000) % 10)
    square(a), total(a)
    raw((16384,), (256,), (a, a.size))
cupy.cuda.Device().synchronize()
