// Rows of a matrix are reached through a table of row pointers, and each thread walks along a row.
//
// Cause: neighbouring threads read addresses a row apart. Remedy: neighbouring threads read neighbouring columns.
#include "corpus.h"

__global__ void norms(float *const *rows, float *out, int count, int width) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= count) return;
    const float *values = rows[row];
    float sum = 0;
    for (int k = 0; k < width; k++) sum += values[k] * values[k];
    out[row] = sqrtf(sum);
}

__global__ void norms_by_warps(float *const *rows, float *out, int count, int width) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= count) return;
    const float *values = rows[row];
    float sum = 0;
    for (int k = lane; k < width; k += 32) sum += values[k] * values[k];
    for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_down_sync(~0u, sum, apart);
    if (lane == 0) out[row] = sqrtf(sum);
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int count = sized(1 << 15, 64), width = sized(1 << 12, 64);
        float *values = device_array<float>(size_t(count) * width), *out = device_array<float>(count);
        std::vector<float *> rows(count);
        for (int i = 0; i < count; i++) rows[i] = values + size_t(i) * width;
        float **table = device_array<float *>(count);
        CUDA(cudaMemcpy(table, rows.data(), count * sizeof(float *), cudaMemcpyHostToDevice));
        return [=] {
            if (remedy) norms_by_warps<<<(count * 32 + 255) / 256, 256>>>(table, out, count, width);
            else norms<<<(count + 255) / 256, 256>>>(table, out, count, width);
        };
    });
}
