// Each thread keeps a histogram of its own in an array that it indexes by data: the array cannot
// be in registers.
//
// Cause: an array in local memory. Remedy: the counters are in shared memory, side by side for the
// threads of a block.
#include "corpus.h"

constexpr int BINS = 32, EACH = 64;

template <bool SHARED> __global__ void spread(const unsigned *data, unsigned *most, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned own[SHARED ? 1 : BINS];
    __shared__ unsigned counters[SHARED ? BINS * 128 : 1];
    auto counter = [&](unsigned bin) -> unsigned & {
        if constexpr (SHARED) return counters[bin * 128 + threadIdx.x];
        else return own[bin];
    };
    for (int bin = 0; bin < BINS; bin++) counter(bin) = 0;
    for (int k = 0; k < EACH; k++) counter(data[k * n + i] % BINS)++;
    unsigned best = 0;
    for (int bin = 0; bin < BINS; bin++) best = max(best, counter(bin));
    most[i] = best;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 20, 1 << 12);
        unsigned *data = device_array<unsigned>(size_t(n) * EACH, 7), *most = device_array<unsigned>(n);
        if (remedy) return [=] { spread<true><<<n / 128, 128>>>(data, most, n); };
        return [=] { spread<false><<<n / 128, 128>>>(data, most, n); };
    });
}
