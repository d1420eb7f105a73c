// Errors: each is provoked, and must be the one that CUDA documents. The last destroys the context, and stays.
#include "check.h"
#include <cstring>
#include <unistd.h>

__global__ void write(int *place, int value) { *place = value; }
__global__ void __launch_bounds__(64) bounded(int *place) { *place = int(threadIdx.x); }

#define FAILS(call, code)                                                                                              \
    do {                                                                                                               \
        EXPECT((call) == code);                                                                                        \
        EXPECT(cudaPeekAtLastError() == code);                                                                         \
        EXPECT(cudaGetLastError() == code);                                                                            \
        EXPECT(cudaGetLastError() == cudaSuccess);                                                                     \
    } while (0)

#define LAUNCH_FAILS(code, ...)                                                                                        \
    do {                                                                                                               \
        __VA_ARGS__;                                                                                                   \
        EXPECT(cudaGetLastError() == code);                                                                            \
        EXPECT(cudaGetLastError() == cudaSuccess);                                                                     \
    } while (0)

int main() {
    int devices = 0;
    CUDA(cudaGetDeviceCount(&devices));
    EXPECT(devices >= 1);
    void *memory;
    FAILS(cudaSetDevice(devices), cudaErrorInvalidDevice);
    FAILS(cudaMalloc(&memory, size_t(1) << 60), cudaErrorMemoryAllocation);
    FAILS(cudaMalloc(nullptr, 16), cudaErrorInvalidValue);
    FAILS(cudaMemcpy((void *)16, &devices, 4, cudaMemcpyKind(77)), cudaErrorInvalidMemcpyDirection);
    FAILS(cudaFree((void *)0x1234), cudaErrorInvalidValue);
    cudaDeviceProp properties;
    CUDA(cudaGetDeviceProperties(&properties, 0));
    EXPECT(properties.major >= 7 && properties.warpSize == 32 && properties.totalGlobalMem > 0);

    Device<int> place(std::vector<int>{5});
    // Which of two codes a bad configuration gives differs between versions of the runtime.
    auto refused = [] {
        cudaError_t status = cudaGetLastError();
        return status == cudaErrorInvalidConfiguration || status == cudaErrorInvalidValue;
    };
    write<<<1, 2048>>>(place.data, 1);
    EXPECT(refused());
    write<<<0, 32>>>(place.data, 1);
    EXPECT(refused());
    write<<<1, dim3(1, 1, 65)>>>(place.data, 1);
    EXPECT(refused());
    LAUNCH_FAILS(cudaErrorInvalidValue, write<<<1, 32, 1 << 20>>>(place.data, 1));
    LAUNCH_FAILS(cudaErrorInvalidValue, bounded<<<1, 128>>>(place.data)); // As an H200 with driver 580 answers.
    EXPECT(place.host()[0] == 5);
    EXPECT(strcmp(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue") == 0);
    EXPECT(strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory") == 0);

    cudaEvent_t event;
    float time;
    CUDA(cudaEventCreate(&event));
    FAILS(cudaEventElapsedTime(&time, event, event), cudaErrorInvalidResourceHandle);
    CUDA(cudaEventDestroy(event));

    LAUNCH(write<<<1, 1>>>(place.data, 17));
    EXPECT(place.host()[0] == 17);
    CUDA(cudaMalloc(&memory, 64));
    CUDA(cudaFree(memory));
    FAILS(cudaFree(memory), cudaErrorInvalidValue);
    printf("%d values right, %d kernels launched\n", compared + 5, launched + 1);
    fflush(stdout);

    write<<<1, 1>>>((int *)0x10, 3); // Accepted; it fails while it runs.
    EXPECT(cudaGetLastError() == cudaSuccess);
    EXPECT(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    EXPECT(cudaMalloc(&memory, 16) == cudaErrorIllegalAddress);
    EXPECT(cudaGetLastError() == cudaErrorIllegalAddress);
    _exit(0);
}
