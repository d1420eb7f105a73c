// Sums of blocks of 32 threads: threads of a block work together, so that no other block is proven to give the same.
#include "program.h"

extern "C" __global__ void sums(float *to, const float *from, int n) {
    __shared__ float part[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = i < n ? from[i] : 0.0f;
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (int k = 0; k < 32; k++) {
            sum += part[k];
        }
        to[blockIdx.x] = sum;
    }
}

int main() {
    const int n = 4 << 20;
    float *from = values(n), *to = values(n / 32);
    for (int round = 0; round < 1000; round++) {
        sums<<<n / 32, 32>>>(to, from, n);
    }
    check(cudaDeviceSynchronize());
    finish(to, n / 32);
}
