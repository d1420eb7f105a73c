// Heat in a rod in blocks of 32 threads, back and forth between two arrays: an SM holds 32 blocks, half of its threads.
#include "program.h"

extern "C" __global__ void heat(float *to, const float *from, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1) {
        to[i] = from[i] + 0.25f * (from[i - 1] - 2.0f * from[i] + from[i + 1]);
    }
}

int main() {
    const int n = (4 << 20) + 13;
    float *one = values(n), *other = values(n);
    for (int round = 0; round < 1500; round++) {
        heat<<<(n + 31) / 32, 32>>>(other, one, n);
        heat<<<(n + 31) / 32, 32>>>(one, other, n);
    }
    check(cudaDeviceSynchronize());
    finish(one, n);
}
