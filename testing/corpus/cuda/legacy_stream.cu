// Four streams do independent work, and a launch into the legacy default stream between them makes each wait for all others.
//
// Cause: the legacy default stream serialises. Remedy: streams that do not wait for it (cudaStreamNonBlocking).
#include "corpus.h"

__global__ void compute(float *data, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = data[i];
    for (int k = 0; k < rounds; k++) x = x * 0.999f + 0.5f;
    data[i] = x;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int rounds = sized(20000, 200);
        float *data = device_array<float>(16 * 256 * 5);
        std::vector<cudaStream_t> streams(4);
        for (auto &stream : streams)
            CUDA(cudaStreamCreateWithFlags(&stream, remedy ? cudaStreamNonBlocking : cudaStreamDefault));
        return [=] {
            for (int i = 0; i < 4; i++) {
                compute<<<16, 256, 0, streams[i]>>>(data + i * 4096, rounds);
                compute<<<16, 256>>>(data + 4 * 4096, rounds);
            }
        };
    });
}
