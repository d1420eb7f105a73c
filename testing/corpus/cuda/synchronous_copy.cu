// Each step copies its input with cudaMemcpy from pageable memory, and computes after that.
//
// Cause: synchronous copies on the critical path. Remedy: pinned memory, and the next input is copied while a kernel runs.
#include "corpus.h"

__global__ void use(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] * 0.5f + out[i];
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 22, 1 << 16);
        float *out = device_array<float>(n);
        float *in[] = {device_array<float>(n), device_array<float>(n)};
        if (!remedy) {
            float *host = static_cast<float *>(calloc(n, sizeof(float)));
            return [=] {
                CUDA(cudaMemcpy(in[0], host, n * sizeof(float), cudaMemcpyHostToDevice));
                use<<<(n + 255) / 256, 256>>>(in[0], out, n);
            };
        }
        float *pinned;
        CUDA(cudaMallocHost(&pinned, n * sizeof(float)));
        cudaStream_t streams[2];
        for (auto &stream : streams) CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        int turn = 0;
        return [=]() mutable {
            CUDA(cudaMemcpyAsync(in[turn], pinned, n * sizeof(float), cudaMemcpyHostToDevice, streams[turn]));
            use<<<(n + 255) / 256, 256, 0, streams[turn]>>>(in[turn], out, n);
            turn = 1 - turn;
        };
    });
}
