// Eight independent kernels of sixteen blocks run one after the other on one stream.
//
// Cause: work of one stream that could run beside another. Remedy: a stream for each.
#include "corpus.h"

__global__ void compute(float *data, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = data[i];
    for (int k = 0; k < rounds; k++) x = x * 0.999f + 0.5f;
    data[i] = x;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int rounds = sized(50000, 200);
        float *data = device_array<float>(8 * 16 * 256);
        std::vector<cudaStream_t> streams(8);
        for (auto &stream : streams) CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        return [=] {
            for (int i = 0; i < 8; i++)
                compute<<<16, 256, 0, streams[remedy ? i : 0]>>>(data + i * 4096, rounds);
        };
    });
}
