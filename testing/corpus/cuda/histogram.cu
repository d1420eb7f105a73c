// A histogram of a dark picture: each thread adds to its value's counter in global memory.
//
// Cause: contended atomics. Remedy: each block counts in shared memory first.
#include "corpus.h"

__global__ void count(const unsigned char *picture, unsigned *bins, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[picture[i]], 1u);
}

__global__ void count_shared(const unsigned char *picture, unsigned *bins, int n) {
    __shared__ unsigned own[256];
    own[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&own[picture[i]], 1u);
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 24, 1 << 14);
        std::vector<unsigned char> picture(n);
        for (int i = 0; i < n; i++) picture[i] = (i * 2654435761u >> 28) & (i >> 3) & 3;
        unsigned char *data = device_array<unsigned char>(n);
        CUDA(cudaMemcpy(data, picture.data(), n, cudaMemcpyHostToDevice));
        unsigned *bins = device_array<unsigned>(256);
        int blocks = sized(1056, 16);
        return [=] { remedy ? count_shared<<<blocks, 256>>>(data, bins, n) : count<<<blocks, 256>>>(data, bins, n); };
    });
}
