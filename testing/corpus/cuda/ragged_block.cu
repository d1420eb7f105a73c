// Blocks of 33 threads: the second warp of each has one thread.
//
// Cause: threads per block are not a multiple of the warp size. Remedy: blocks of 64 threads.
#include "corpus.h"

__global__ void compute(float *data, int n, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = data[i];
    for (int k = 0; k < rounds; k++) x = x * 0.999f + 0.5f;
    data[i] = x;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int threads = remedy ? 64 : 33, n = sized(1 << 24, 1 << 14), rounds = sized(256, 8);
        float *data = device_array<float>(n);
        return [=] { compute<<<(n + threads - 1) / threads, threads>>>(data, n, rounds); };
    });
}
