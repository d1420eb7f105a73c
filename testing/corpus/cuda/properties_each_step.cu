// A launcher asks for the device's properties before each launch, to choose its grid.
//
// Cause: cudaGetDeviceProperties in every iteration. Remedy: once.
#include "corpus.h"

__global__ void grid_stride(float *data, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) data[i] = data[i] * 0.9f + 0.1f;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 20, 1 << 9);
        float *data = device_array<float>(n);
        auto processors = [] {
            cudaDeviceProp properties;
            CUDA(cudaGetDeviceProperties(&properties, 0));
            return properties.multiProcessorCount;
        };
        int once = processors();
        return [=] { grid_stride<<<4 * (remedy ? once : processors()), 256>>>(data, n); };
    });
}
