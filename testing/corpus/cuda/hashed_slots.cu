// A hash table with a number of slots that is no power of two: keys are reduced by 64-bit remainders.
//
// Cause: 64-bit divisions by a number that the compiler does not know. Remedy: a power of two, and a mask.
#include "corpus.h"

template <bool MASK> __global__ void slots(const unsigned long long *keys, unsigned long long *out, int n, unsigned long long size) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned long long key = keys[i], mixed = 0;
    for (int probe = 0; probe < 8; probe++) {
        key = key * 6364136223846793005ull + 1442695040888963407ull;
        mixed ^= MASK ? key & (size - 1) : key % size;
    }
    out[i] = mixed;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 22, 1 << 10);
        auto *keys = device_array<unsigned long long>(n, 3), *out = device_array<unsigned long long>(n);
        return [=] {
            if (remedy) slots<true><<<(n + 255) / 256, 256>>>(keys, out, n, 1ull << 33);
            else slots<false><<<(n + 255) / 256, 256>>>(keys, out, n, 9999999967ull);
        };
    });
}
