// A vector sum in blocks of 16 threads: half of each warp is empty, and an SM holds 512 of its 2,048 threads.
#include "program.h"

extern "C" __global__ void axpy(float *y, const float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = a * x[i] + y[i];
    }
}

int main() {
    const int n = (4 << 20) - 7;
    float *x = values(n), *y = values(n);
    for (int round = 0; round < 3000; round++) {
        axpy<<<(n + 15) / 16, 16>>>(y, x, 1e-3f, n);
    }
    check(cudaDeviceSynchronize());
    finish(y, n);
}
