// Each step allocates 64 MiB for what a kernel needs for some microseconds, and frees it.
//
// Cause: allocation in a loop. Remedy: stream-ordered allocation from a pool that keeps its memory.
#include "corpus.h"

__global__ void touch(float *data, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) data[i] = i;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = 1 << 16;
        size_t bytes = sized(64 << 20, 8 << 20);
        if (remedy) {
            cudaMemPool_t pool;
            unsigned long long keep = ~0ull;
            CUDA(cudaDeviceGetDefaultMemPool(&pool, 0));
            CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
            return [=] {
                float *data;
                CUDA(cudaMallocAsync(&data, bytes, 0));
                touch<<<132, 256>>>(data, n);
                CUDA(cudaFreeAsync(data, 0));
            };
        }
        return [=] {
            float *data;
            CUDA(cudaMalloc(&data, bytes));
            touch<<<132, 256>>>(data, n);
            CUDA(cudaFree(data));
        };
    });
}
