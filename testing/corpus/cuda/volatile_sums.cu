// A reduction reads and writes shared memory that is declared volatile, with a barrier after each step, down to one lane.
//
// Cause: ten steps through shared memory with barriers for each 1,024 values. Remedy: sums in registers, shuffles, one barrier.
#include "corpus.h"

__global__ void sums(const float *in, float *out, int tiles) {
    __shared__ volatile float part[1024];
    int t = threadIdx.x;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        part[t] = in[size_t(tile) * 1024 + t];
        __syncthreads();
        for (int stride = 1; stride < 1024; stride *= 2) {
            if (t % (2 * stride) == 0) part[t] += part[t + stride];
            __syncthreads();
        }
        if (t == 0) out[tile] = part[0];
        __syncthreads();
    }
}

__global__ void sums_in_registers(const float *in, float *out, int tiles) {
    int lane = threadIdx.x % 32, warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, warps = gridDim.x * blockDim.x / 32;
    for (int tile = warp; tile < tiles; tile += warps) {
        float sum = 0;
        for (int k = lane; k < 1024; k += 32) sum += in[size_t(tile) * 1024 + k];
        for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_down_sync(~0u, sum, apart);
        if (lane == 0) out[tile] = sum;
    }
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int tiles = sized(1 << 16, 8);
        float *in = device_array<float>(size_t(tiles) * 1024), *out = device_array<float>(tiles);
        return [=] {
            if (remedy) sums_in_registers<<<sized(1056, 2), 1024>>>(in, out, tiles);
            else sums<<<sized(264, 2), 1024>>>(in, out, tiles);
        };
    });
}
