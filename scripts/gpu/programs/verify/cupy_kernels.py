"""CuPy: ufuncs, fused and element-wise kernels, a RawKernel compiled by NVRTC, cuBLAS, a captured graph."""

import cupy
from output import write

generator = cupy.random.RandomState(4)
a = generator.rand(1000, 777, dtype=cupy.float32)
b = generator.rand(1000, 777, dtype=cupy.float32)

raw = cupy.RawKernel(
    r"""
extern "C" __global__ void collatz(unsigned *steps, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned long long value = i + 1;
  unsigned count = 0;
  for (; value != 1; count++) value = value % 2 ? 3 * value + 1 : value / 2;
  steps[i] = count;
}""",
    "collatz",
)
steps = cupy.full(50000, 0xFFFFFFFF, dtype=cupy.uint32)
for threads in (64, 128, 256, 512):
    raw(((50000 + threads - 1) // threads,), (threads,), (steps, cupy.int32(50000)))

squared_difference = cupy.ElementwiseKernel("T x, T y", "T z", "z = (x - y) * (x - y)", "squared_difference")


@cupy.fuse()
def fused(x, y):
    return cupy.sqrt(x * x + y * y) - cupy.minimum(x, y)


c = a
for _ in range(40):
    c = cupy.sin(c) + fused(a, b) * squared_difference(c, b)
product = a[:512, :512] @ b[:512, :512].T
order = cupy.argsort(c[0])

stream = cupy.cuda.Stream(non_blocking=True)
d = cupy.ones(10000, dtype=cupy.float32) * 1.5
cupy.cuda.Device().synchronize()
with stream:
    cupy.multiply(d, 1.25, out=d)
    stream.begin_capture()
    for _ in range(5):
        cupy.multiply(d, 1.01, out=d)
    graph = stream.end_capture()
    for _ in range(30):
        graph.launch(stream=stream)
    stream.synchronize()

write(*(cupy.asnumpy(x) for x in (steps, c, product, order, d)))
