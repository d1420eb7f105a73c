// Each thread keeps 32 counters of its own in shared memory, one after the other: all threads of a warp meet in one bank.
//
// Cause: bank conflicts. Remedy: the counters of one number lie side by side for all threads.
#include "corpus.h"

template <bool ACROSS> __global__ void histogram(const unsigned char *data, unsigned *counts, int each) {
    __shared__ unsigned local[32 * 256];
    auto counter = [&](unsigned bin) -> unsigned & {
        return ACROSS ? local[bin * blockDim.x + threadIdx.x] : local[threadIdx.x * 32 + bin];
    };
    for (int bin = 0; bin < 32; bin++) counter(bin) = 0;
    for (int i = 0; i < each; i++) counter(data[size_t(blockIdx.x * each + i) * blockDim.x + threadIdx.x] & 31)++;
    __syncthreads();
    if (threadIdx.x < 32) {
        unsigned sum = 0;
        for (int thread = 0; thread < blockDim.x; thread++)
            sum += ACROSS ? local[threadIdx.x * blockDim.x + (thread + threadIdx.x) % blockDim.x] : local[thread * 32 + threadIdx.x];
        counts[blockIdx.x * 32 + threadIdx.x] = sum;
    }
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int blocks = sized(4096, 16), each = sized(512, 16);
        auto *data = device_array<unsigned char>(size_t(blocks) * each * 256, 7);
        unsigned *counts = device_array<unsigned>(size_t(blocks) * 32);
        if (remedy) return [=] { histogram<true><<<blocks, 256>>>(data, counts, each); };
        return [=] { histogram<false><<<blocks, 256>>>(data, counts, each); };
    });
}
