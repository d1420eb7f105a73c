"""A CUDA program through the driver API: what `test_apex_cuda.py` runs under ``apex run``.

Launches 3 kernels outside of the block that is recorded and 5 inside: 2 of these in the range
``warm``, 3 in calls of a function whose range is ``step``.
"""

import ctypes
import sys

import apex_cuda

PTX = b"""
.version 7.0
.target sm_52
.address_size 64
.visible .entry nothing()
{
    ret;
}
"""


class Device:
    """The first device, with a kernel that does nothing."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context, module, self.kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        self.call("cuModuleLoadData", ctypes.byref(module), PTX)
        self.call("cuModuleGetFunction", ctypes.byref(self.kernel), module, b"nothing")

    def call(self, name: str, *arguments: object) -> None:
        """Calls the driver."""
        result = getattr(self.cuda, name)(*arguments)
        if result != 0:
            sys.exit(f"{name} failed with {result}")

    def launch(self) -> None:
        """Launches the kernel, and allocates and frees 4 KiB."""
        one, none, address = ctypes.c_uint(1), ctypes.c_void_p(), ctypes.c_void_p()
        self.call(
            "cuLaunchKernel",
            self.kernel,
            one,
            one,
            one,
            one,
            one,
            one,
            ctypes.c_uint(0),
            none,
            none,
            none,
        )
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(4096))
        self.call("cuMemFree_v2", address)
        self.call("cuCtxSynchronize")


def main() -> None:
    """Runs it."""
    device = Device()

    @apex_cuda.range("step")
    def step() -> None:
        device.launch()

    device.launch()
    with apex_cuda.record() as session:
        with apex_cuda.range("warm"), apex_cuda.record():
            for _ in range(2):
                device.launch()
        for _ in range(3):
            step()
    for _ in range(2):
        device.launch()
    print(len(session.rows("launches")), *sys.argv[1:])


if __name__ == "__main__":
    main()
