// Asynchronous copies from pageable memory: the driver copies through a buffer of its own, and the call waits for that.
//
// Cause: pageable memory. Remedy: pinned memory.
#include "corpus.h"

__global__ void use(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] * 0.5f + out[i];
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 24, 1 << 16);
        float *in = device_array<float>(n), *out = device_array<float>(n), *host;
        if (remedy) CUDA(cudaMallocHost(&host, n * sizeof(float)));
        else host = static_cast<float *>(calloc(n, sizeof(float)));
        memset(host, 1, n * sizeof(float));
        cudaStream_t stream;
        CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        return [=] {
            CUDA(cudaMemcpyAsync(in, host, n * sizeof(float), cudaMemcpyHostToDevice, stream));
            use<<<(n + 255) / 256, 256, 0, stream>>>(in, out, n);
        };
    });
}
