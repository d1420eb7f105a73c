// Each thread holds 128 values in registers while it waits for memory: few warps fit on a multiprocessor.
//
// Cause: low occupancy, limited by registers. Remedy: a warp for the work of a thread, with a few registers each.
#include "corpus.h"

template <int VALUES> __global__ void collect(const int *next, int *out, int n, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int at[VALUES];
#pragma unroll
    for (int v = 0; v < VALUES; v++) at[v] = (i * VALUES + v) % n;
    for (int k = 0; k < rounds; k++) {
#pragma unroll
        for (int v = 0; v < VALUES; v++) at[v] = next[(at[v] + at[(v + 1) % VALUES]) & (n - 1)];
    }
    int sum = 0;
#pragma unroll
    for (int v = 0; v < VALUES; v++) sum ^= at[v];
    out[i] = sum;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 24, 1 << 12), threads = sized(132 * 2048, 2048), rounds = sized(8, 1);
        std::vector<int> host(n);
        for (long i = 0; i < n; i++) host[i] = int((i * 1664525 + 1013904223) % n);
        int *next = device_array<int>(n), *out = device_array<int>(size_t(threads) * 16);
        CUDA(cudaMemcpy(next, host.data(), n * sizeof(int), cudaMemcpyHostToDevice));
        if (remedy) return [=] { collect<8><<<threads * 16 / 256, 256>>>(next, out, n, rounds); };
        return [=] { collect<128><<<threads / 256, 256>>>(next, out, n, rounds); };
    });
}
