// Polynomials in blocks of 1,024 threads with many registers: an SM holds one block, and waits for its last warp.
#include "program.h"

extern "C" __global__ void polynomials(float *to, const float *from, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) {
        return;
    }
    float x = from[i], powers[24];
    powers[0] = x;
#pragma unroll
    for (int k = 1; k < 24; k++) {
        powers[k] = __fmaf_rn(powers[k - 1], x, 0.5f);
    }
    // Each round uses all powers, so that all stay in registers. The number of rounds differs between threads.
    int rounds = 4 + (__float_as_int(x) >> 12 & 63);
    float sum = 0.0f;
    for (int round = 0; round < rounds; round++) {
#pragma unroll
        for (int k = 0; k < 24; k++) {
            sum = __fmaf_rn(sum, 0.75f, powers[k]);
            powers[k] = __fmaf_rn(powers[k], 0.5f, sum);
        }
    }
    to[i] = sum;
}

int main() {
    const int n = (1 << 20) + 5;
    float *from = values(n), *to = values(n);
    for (int round = 0; round < 1500; round++) {
        polynomials<<<(n + 1023) / 1024, 1024>>>(to, from, n);
    }
    check(cudaDeviceSynchronize());
    finish(to, n);
}
