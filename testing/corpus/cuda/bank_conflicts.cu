// A tile of 32 by 32 floats is written by rows and read by columns: the 32 threads of a warp want words of one bank.
//
// Cause: bank conflicts. Remedy: rows of the tile are padded by one float.
#include "corpus.h"

template <int WIDTH> __global__ void sum_columns(const float *in, float *out, int rounds) {
    __shared__ float tile[32][WIDTH];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    size_t base = size_t(blockIdx.x) * 1024;
    for (int j = warp; j < 32; j += blockDim.x / 32) tile[j][lane] = in[base + j * 32 + lane];
    __syncthreads();
    float sum = 0;
    for (int round = 0; round < rounds; round++)
        for (int j = 0; j < 32; j++) sum += tile[lane][(j + round) & 31];
    out[size_t(blockIdx.x) * blockDim.x + threadIdx.x] = sum;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int blocks = sized(8192, 32), rounds = sized(32, 2);
        float *in = device_array<float>(size_t(blocks) * 1024), *out = device_array<float>(size_t(blocks) * 256);
        if (remedy) return [=] { sum_columns<33><<<blocks, 256>>>(in, out, rounds); };
        return [=] { sum_columns<32><<<blocks, 256>>>(in, out, rounds); };
    });
}
