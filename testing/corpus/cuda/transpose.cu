// A matrix is transposed as its definition reads.
//
// Cause: uncoalesced writes. Remedy: a padded tile in shared memory.
#include "corpus.h"

__global__ void naive(float *out, const float *in, int n) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int i = 0; i < 32; i += 8) out[(size_t)x * n + y + i] = in[(size_t)(y + i) * n + x];
}

__global__ void tiled(float *out, const float *in, int n) {
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int i = 0; i < 32; i += 8) tile[threadIdx.y + i][threadIdx.x] = in[(size_t)(y + i) * n + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
    for (int i = 0; i < 32; i += 8) out[(size_t)(y + i) * n + x] = tile[threadIdx.x][threadIdx.y + i];
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(8192, 128);
        float *in = device_array<float>((size_t)n * n), *out = device_array<float>((size_t)n * n);
        dim3 blocks(n / 32, n / 32), threads(32, 8);
        return [=] { remedy ? tiled<<<blocks, threads>>>(out, in, n) : naive<<<blocks, threads>>>(out, in, n); };
    });
}
