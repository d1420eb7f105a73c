// Each block of 64 threads keeps 48 KiB of shared memory, of which it uses 4: four blocks fit on a multiprocessor.
//
// Cause: low occupancy, limited by shared memory. Remedy: as much shared memory as is used.
#include "corpus.h"

__global__ void gather(const int *next, float *out, int n, int rounds) {
    extern __shared__ float scratch[];
    int i = blockIdx.x * blockDim.x + threadIdx.x, at = i % n;
    for (int k = 0; k < rounds; k++) at = next[at];
    scratch[threadIdx.x] = at;
    __syncthreads();
    out[i] = scratch[blockDim.x - 1 - threadIdx.x];
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 24, 1 << 12), blocks = sized(132 * 64, 1024), rounds = sized(64, 4);
        std::vector<int> host(n);
        for (long i = 0; i < n; i++) host[i] = int((i * 1664525 + 1013904223) % n);
        int *next = device_array<int>(n), bytes = remedy ? 4096 : 48 << 10;
        float *out = device_array<float>(size_t(blocks) * 64);
        CUDA(cudaMemcpy(next, host.data(), n * sizeof(int), cudaMemcpyHostToDevice));
        return [=] { gather<<<blocks, 64, bytes>>>(next, out, n, rounds); };
    });
}
