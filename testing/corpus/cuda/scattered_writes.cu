// A transposition that reads rows and writes columns: each store of a warp touches 32 sectors.
//
// Cause: uncoalesced writes. Remedy: through a padded tile in shared memory.
#include "corpus.h"

__global__ void transpose(const float *in, float *out, int n) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    out[size_t(x) * n + y] = in[size_t(y) * n + x];
}

__global__ void transpose_tiled(const float *in, float *out, int n) {
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32, y = blockIdx.y * 32;
    for (int j = threadIdx.y; j < 32; j += 8) tile[j][threadIdx.x] = in[size_t(y + j) * n + x + threadIdx.x];
    __syncthreads();
    for (int j = threadIdx.y; j < 32; j += 8) out[size_t(x + j) * n + y + threadIdx.x] = tile[threadIdx.x][j];
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(16384, 256);
        float *in = device_array<float>(size_t(n) * n), *out = device_array<float>(size_t(n) * n);
        if (remedy) return [=] { transpose_tiled<<<dim3(n / 32, n / 32), dim3(32, 8)>>>(in, out, n); };
        return [=] { transpose<<<dim3(n / 32, n / 8), dim3(32, 8)>>>(in, out, n); };
    });
}
