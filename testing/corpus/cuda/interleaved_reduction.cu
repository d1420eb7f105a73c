// A reduction in shared memory in which every second, then every fourth thread works: most lanes of each warp idle.
//
// Cause: branch divergence. Remedy: the threads that work are the first ones.
#include "corpus.h"

template <bool SEQUENTIAL> __global__ void reduce(const float *in, float *out) {
    __shared__ float part[512];
    part[threadIdx.x] = in[size_t(blockIdx.x) * blockDim.x + threadIdx.x];
    __syncthreads();
    if (SEQUENTIAL) {
        for (unsigned s = blockDim.x / 2; s > 0; s /= 2) {
            if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
            __syncthreads();
        }
    } else {
        for (unsigned s = 1; s < blockDim.x; s *= 2) {
            if (threadIdx.x % (2 * s) == 0) part[threadIdx.x] += part[threadIdx.x + s];
            __syncthreads();
        }
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int blocks = sized(1 << 17, 128);
        float *in = device_array<float>(size_t(blocks) * 512), *out = device_array<float>(blocks);
        if (remedy) return [=] { reduce<true><<<blocks, 512>>>(in, out); };
        return [=] { reduce<false><<<blocks, 512>>>(in, out); };
    });
}
