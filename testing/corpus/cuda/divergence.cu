// Neighbouring threads do different kinds of work, chosen by the parity of their index: a warp does both, one after the other.
//
// Cause: branch divergence. Remedy: each warp does one kind of work.
#include "corpus.h"

__device__ float heavy(float x, int kind) {
    if (kind == 0) {
        for (int i = 0; i < 128; i++) x = x * 1.0001f + 0.5f;
    } else if (kind == 1) {
        for (int i = 0; i < 128; i++) x = sqrtf(x + 1.0f);
    } else if (kind == 2) {
        for (int i = 0; i < 128; i++) x = x * x - 0.7f;
    } else {
        for (int i = 0; i < 128; i++) x = fabsf(x - 0.3f) * 1.1f;
    }
    return x;
}

template <bool BY_WARP> __global__ void work(float *data) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = heavy(data[i], (BY_WARP ? i / 32 : i) % 4);
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int blocks = sized(1 << 16, 32);
        float *data = device_array<float>(size_t(blocks) * 256);
        if (remedy) return [=] { work<true><<<blocks, 256>>>(data); };
        return [=] { work<false><<<blocks, 256>>>(data); };
    });
}
