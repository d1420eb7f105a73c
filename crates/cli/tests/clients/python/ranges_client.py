"""NVTX ranges as users of CuPy name them, with a number of launches in each."""

import cupy as cp
from cupy.cuda import nvtx
from cupyx.profiler import time_range

kernel = cp.RawKernel(
    r"""
    extern "C" __global__ void client_add(float* x, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) x[i] += 1;
    }
    """,
    "client_add",
)
x = cp.empty(256, cp.float32)


def launch(times):
    for _ in range(times):
        kernel((2,), (128,), (x, cp.int32(256)))


@time_range(message="décoré", color_id=2)
def decorated():
    launch(3)


launch(1)
started = nvtx.RangeStart("process", 0)
nvtx.RangePush("outer")
launch(2)
for _ in range(2):
    nvtx.RangePushC("inner", 0xFF00FF00)
    decorated()
    launch(1)
    nvtx.RangePop()
nvtx.RangePop()
nvtx.RangeEnd(started)
launch(1)
cp.cuda.Device().synchronize()
print("12 kernels launched")
