// saxpy with one thread for each block: "as many blocks as elements".
//
// Cause: threads per block are not a multiple of the warp size. Remedy: blocks of 256 threads.
#include "corpus.h"

__global__ void saxpy(float *y, const float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 20, 1 << 12), threads = remedy ? 256 : 1;
        float *x = device_array<float>(n), *y = device_array<float>(n);
        return [=] { saxpy<<<(n + threads - 1) / threads, threads>>>(y, x, 2.0f, n); };
    });
}
