// Every thread adds to one counter.
//
// Cause: contended atomics. Remedy: each block adds up in shared memory and adds once.
#include "corpus.h"

__global__ void count(const int *data, unsigned long long *total, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(total + (data[i] & 1), (unsigned long long)(i & 3));
}

__global__ void count_by_blocks(const int *data, unsigned long long *total, int n) {
    __shared__ unsigned long long sums[256];
    unsigned long long sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += data[i] + (i & 3);
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int s = 128; s > 0; s /= 2) {
        if (threadIdx.x < s) sums[threadIdx.x] += sums[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(total, sums[0]);
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 24, 1 << 16), blocks = sized(1056, 16);
        int *data = device_array<int>(n);
        auto *total = device_array<unsigned long long>(2);
        if (remedy) return [=] { count_by_blocks<<<blocks, 256>>>(data, total, n); };
        return [=] { count<<<blocks, 256>>>(data, total, n); };
    });
}
