// Blocks of data are copied to the device, worked on and copied back, one after the other on one stream, from pinned memory.
//
// Cause: copies on the critical path. Remedy: four streams, so that copies in both directions and kernels overlap.
#include "corpus.h"

__global__ void work(float *data, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float x = data[i];
        for (int k = 0; k < 400; k++) x = x * 0.999f + 0.001f;
        data[i] = x;
    }
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 22, 1 << 12), blocks = 8, many = remedy ? 4 : 1;
        float *host, *device = device_array<float>((size_t)n * blocks);
        CUDA(cudaMallocHost(&host, (size_t)n * blocks * sizeof(float)));
        std::vector<cudaStream_t> streams(many);
        for (auto &stream : streams) CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        return [=] {
            for (int b = 0; b < blocks; b++) {
                cudaStream_t stream = streams[b % many];
                float *h = host + (size_t)b * n, *d = device + (size_t)b * n;
                CUDA(cudaMemcpyAsync(d, h, n * sizeof(float), cudaMemcpyHostToDevice, stream));
                work<<<1056, 256, 0, stream>>>(d, n);
                CUDA(cudaMemcpyAsync(h, d, n * sizeof(float), cudaMemcpyDeviceToHost, stream));
            }
        };
    });
}
