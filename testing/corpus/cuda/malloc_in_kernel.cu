// Each thread of a kernel allocates a small list with malloc, fills it, sums it up and frees it.
//
// Cause: the device's heap serialises. Remedy: a fixed array in registers.
#include "corpus.h"

template <bool HEAP> __global__ void lists(float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float kept[8];
    float *list = HEAP ? (float *)malloc(sizeof(kept)) : kept;
    if (!list) return;
#pragma unroll
    for (int k = 0; k < 8; k++) list[k] = i * 0.5f + k;
    float sum = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) sum += list[k] * list[7 - k];
    if (HEAP) free(list);
    out[i] = sum;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 15, 1 << 7);
        float *out = device_array<float>(n);
        return [=] {
            if (remedy) lists<false><<<(n + 127) / 128, 128>>>(out, n);
            else lists<true><<<(n + 127) / 128, 128>>>(out, n);
        };
    });
}
