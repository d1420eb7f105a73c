// Each iteration allocates pinned memory for its input and frees it.
//
// Cause: allocation in a loop. Remedy: one buffer for all iterations.
#include "corpus.h"

__global__ void work(float *data, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] = data[i] * 0.999f + 0.001f;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 20, 1 << 12);
        size_t bytes = n * sizeof(float);
        float *data = device_array<float>(n), *once;
        CUDA(cudaMallocHost(&once, bytes));
        return [=] {
            float *host = once;
            if (!remedy) CUDA(cudaMallocHost(&host, bytes));
            for (int i = 0; i < n; i += 1024) host[i] = i;
            CUDA(cudaMemcpyAsync(data, host, bytes, cudaMemcpyHostToDevice));
            work<<<(n + 255) / 256, 256>>>(data, n);
            CUDA(cudaDeviceSynchronize());
            if (!remedy) CUDA(cudaFreeHost(host));
        };
    });
}
