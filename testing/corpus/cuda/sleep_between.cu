// Between two steps the host waits for something outside of the program.
//
// Cause: the device is idle while the host's own code runs. Remedy: a thread does it while the device computes.
#include "corpus.h"
#include <future>
#include <memory>
#include <thread>

__global__ void compute(float *data, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = data[i];
    for (int k = 0; k < rounds; k++) x = x * 0.999f + 0.5f;
    data[i] = x;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int blocks = sized(132 * 8, 8), rounds = sized(200000, 200);
        float *data = device_array<float>(size_t(blocks) * 256);
        auto outside = [] { std::this_thread::sleep_for(std::chrono::milliseconds(10)); };
        auto pending = std::make_shared<std::future<void>>();
        return [=] {
            for (int i = 0; i < 4; i++) compute<<<blocks, 256>>>(data, rounds);
            if (remedy) {
                if (pending->valid()) pending->wait();
                *pending = std::async(std::launch::async, outside);
            }
            CUDA(cudaDeviceSynchronize());
            if (!remedy) outside();
        };
    });
}
