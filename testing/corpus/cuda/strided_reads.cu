// The threads of a warp read addresses a row apart: each read moves 32 sectors for the bytes of 4.
//
// Cause: uncoalesced reads. Remedy: neighbouring threads read neighbouring columns.
#include "corpus.h"

__global__ void row_sums(const float *matrix, float *sums, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int column = 0; column < n; column++) sum += matrix[size_t(row) * n + column];
    sums[row] = sum;
}

__global__ void row_sums_by_warps(const float *matrix, float *sums, int n) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    float sum = 0;
    for (int column = lane; column < n; column += 32) sum += matrix[size_t(row) * n + column];
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
    if (lane == 0) sums[row] = sum;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(16384, 256);
        float *matrix = device_array<float>(size_t(n) * n), *sums = device_array<float>(n);
        if (remedy) return [=] { row_sums_by_warps<<<n * 32 / 128, 128>>>(matrix, sums, n); };
        return [=] { row_sums<<<n / 128, 128>>>(matrix, sums, n); };
    });
}
