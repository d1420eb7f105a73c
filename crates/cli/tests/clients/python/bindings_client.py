"""The driver and NVRTC through NVIDIA's own Python bindings: compile, load, launch, read back, in every way of loading."""

import ctypes
import sys

import numpy as np

try:
    from cuda.bindings import driver, nvrtc
except ImportError:
    from cuda import cuda as driver, nvrtc

SOURCE = rb"""
__device__ int calls = 0;
extern "C" __global__ void client_saxpy(float a, const float* x, float* y, size_t n) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
    if (i == 0) atomicAdd(&calls, 1);
}
"""


def checked(result):
    status, *values = result
    if int(status) != 0:
        raise RuntimeError(f"{status!r}")
    return values[0] if len(values) == 1 else tuple(values)


def compiled():
    program = checked(nvrtc.nvrtcCreateProgram(SOURCE, b"saxpy.cu", 0, [], []))
    options = [b"--gpu-architecture=compute_80", b"--std=c++17"]
    checked(nvrtc.nvrtcCompileProgram(program, len(options), options))
    ptx = b" " * checked(nvrtc.nvrtcGetPTXSize(program))
    checked(nvrtc.nvrtcGetPTX(program, ptx))
    return ptx


def launch(function, stream, a, x, y):
    n = x.size
    device_x, device_y = (checked(driver.cuMemAlloc(array.nbytes)) for array in (x, y))
    checked(driver.cuMemcpyHtoDAsync(device_x, x.ctypes.data, x.nbytes, stream))
    checked(driver.cuMemcpyHtoDAsync(device_y, y.ctypes.data, y.nbytes, stream))
    arguments = (
        (a, device_x, device_y, n),
        (ctypes.c_float, None, None, ctypes.c_size_t),
    )
    checked(driver.cuLaunchKernel(function, (n + 127) // 128, 1, 1, 128, 1, 1, 0, stream, arguments, 0))
    found = np.empty_like(y)
    checked(driver.cuMemcpyDtoHAsync(found.ctypes.data, device_y, found.nbytes, stream))
    checked(driver.cuStreamSynchronize(stream))
    for memory in (device_x, device_y):
        checked(driver.cuMemFree(memory))
    np.testing.assert_allclose(found, a * x + y, rtol=1e-6, atol=1e-6)


checked(driver.cuInit(0))
device = checked(driver.cuDeviceGet(0))
context = checked(driver.cuDevicePrimaryCtxRetain(device))
checked(driver.cuCtxSetCurrent(context))
major = checked(driver.cuDeviceGetAttribute(driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device))
assert major >= 7

ptx = compiled()
generator = np.random.default_rng(3)
x, y = generator.standard_normal((2, 10001)).astype(np.float32)
stream = checked(driver.cuStreamCreate(0))

module = checked(driver.cuModuleLoadData(ptx))
launch(checked(driver.cuModuleGetFunction(module, b"client_saxpy")), stream, 2.5, x, y)
library = checked(driver.cuLibraryLoadData(ptx, [], [], 0, [], [], 0))
kernel = checked(driver.cuLibraryGetKernel(library, b"client_saxpy"))
launch(checked(driver.cuKernelGetFunction(kernel)), stream, -0.5, x, y)

address, size = checked(driver.cuModuleGetGlobal(module, b"calls"))
count = np.zeros(1, np.int32)
checked(driver.cuMemcpyDtoH(count.ctypes.data, address, size))
assert count[0] == 1 and size == 4

status, _ = driver.cuModuleLoadData(ptx.replace(b"ret;", b"ret"))
assert status == driver.CUresult.CUDA_ERROR_INVALID_PTX, status
status, _ = driver.cuModuleGetFunction(module, b"nothing")
assert status == driver.CUresult.CUDA_ERROR_NOT_FOUND, status

checked(driver.cuModuleUnload(module))
checked(driver.cuLibraryUnload(library))
checked(driver.cuStreamDestroy(stream))
checked(driver.cuDevicePrimaryCtxRelease(device))
print(f"cuda-bindings on Python {sys.version_info.major}.{sys.version_info.minor}: right, 2 kernels launched")
