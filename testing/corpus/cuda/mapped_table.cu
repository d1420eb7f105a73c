// A kernel looks values up in a table that lies in mapped host memory.
//
// Cause: each look-up crosses PCIe. Remedy: the table is copied to the device once.
#include "corpus.h"

__global__ void look_up(const float *table, const int *index, float *out, int n, int size) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0;
    for (int k = 0; k < 4; k++) sum += table[(index[i] + k * 7919) % size];
    out[i] = sum;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 20, 1 << 8), size = sized(1 << 20, 1 << 10);
        float *host, *mapped, *table = device_array<float>(size), *out = device_array<float>(n);
        CUDA(cudaHostAlloc(&host, size * sizeof(float), cudaHostAllocMapped));
        for (int i = 0; i < size; i++) host[i] = 1.0f / (i + 1);
        CUDA(cudaHostGetDevicePointer(&mapped, host, 0));
        CUDA(cudaMemcpy(table, host, size * sizeof(float), cudaMemcpyHostToDevice));
        std::vector<int> numbers(n);
        for (int i = 0; i < n; i++) numbers[i] = int(i * 2654435761u % size);
        int *index = device_array<int>(n);
        CUDA(cudaMemcpy(index, numbers.data(), n * sizeof(int), cudaMemcpyHostToDevice));
        return [=] { look_up<<<(n + 255) / 256, 256>>>(remedy ? table : mapped, index, out, n, size); };
    });
}
