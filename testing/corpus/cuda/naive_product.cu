// A product of matrices as it is written first: each thread adds up one element, and reads all
// from global memory.
//
// Cause: no reuse in shared memory. Remedy: tiles in shared memory, of which each thread computes
// eight by eight elements.
#include "corpus.h"

__global__ void simple(const float *a, const float *b, float *c, int n) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; k++) sum += a[(size_t)row * n + k] * b[(size_t)k * n + column];
    c[(size_t)row * n + column] = sum;
}

// Blocks of 16 by 16 threads compute 128 by 128 elements; n is a multiple of 128.
__global__ void tiled(const float *a, const float *b, float *c, int n) {
    __shared__ float left[8][132], right[8][128];
    int t = threadIdx.y * 16 + threadIdx.x, row = blockIdx.y * 128, column = blockIdx.x * 128;
    float sum[8][8] = {};
    for (int k = 0; k < n; k += 8) {
        for (int i = 0; i < 4; i++) {
            left[t % 8][t / 8 + 32 * i] = a[(size_t)(row + t / 8 + 32 * i) * n + k + t % 8];
            right[t / 128 + 2 * i][t % 128] = b[(size_t)(k + t / 128 + 2 * i) * n + column + t % 128];
        }
        __syncthreads();
        for (int j = 0; j < 8; j++) {
            float x[8], y[8];
            for (int i = 0; i < 8; i++) x[i] = left[j][threadIdx.y * 8 + i], y[i] = right[j][threadIdx.x + 16 * i];
            for (int r = 0; r < 8; r++)
                for (int s = 0; s < 8; s++) sum[r][s] += x[r] * y[s];
        }
        __syncthreads();
    }
    for (int r = 0; r < 8; r++)
        for (int s = 0; s < 8; s++) c[(size_t)(row + threadIdx.y * 8 + r) * n + column + threadIdx.x + 16 * s] = sum[r][s];
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(2048, 128);
        size_t count = (size_t)n * n;
        float *a = device_array<float>(count), *b = device_array<float>(count), *c = device_array<float>(count);
        return [=] {
            if (remedy) tiled<<<dim3(n / 128, n / 128), dim3(16, 16)>>>(a, b, c, n);
            else simple<<<dim3(n / 16, n / 16), dim3(16, 16)>>>(a, b, c, n);
        };
    });
}
