// A substitution table in constant memory, which each thread reads at another place.
//
// Cause: constant memory serves one address of a warp at a time. Remedy: the table is in shared memory.
#include "corpus.h"

__constant__ unsigned substitution[256];

template <bool SHARED> __global__ void substitute(const unsigned *in, unsigned *out, int n) {
    __shared__ unsigned table[256];
    if (SHARED) {
        table[threadIdx.x] = substitution[threadIdx.x];
        __syncthreads();
    }
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned state = in[i] * 2654435761u + i;
    for (int round = 0; round < 32; round++) {
        unsigned at = (state >> 13) & 255;
        state = state * 1664525u + (SHARED ? table[at] : substitution[at]);
    }
    out[i] = state;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 22, 1 << 10);
        unsigned *in = device_array<unsigned>(n, 5), *out = device_array<unsigned>(n), table[256];
        for (unsigned i = 0; i < 256; i++) table[i] = i * 2246822519u;
        CUDA(cudaMemcpyToSymbol(substitution, table, sizeof(table)));
        return [=] {
            if (remedy) substitute<true><<<(n + 255) / 256, 256>>>(in, out, n);
            else substitute<false><<<(n + 255) / 256, 256>>>(in, out, n);
        };
    });
}
