// Both kernels change the same array in place.
#include "pairs.h"

extern "C" __global__ void positive(float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = fmaxf(y[i], 0.5f);
    }
}

extern "C" __global__ void scaled(float *y, float s, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = y[i] * s;
    }
}

int main(int count, char **arguments) {
    auto [n, rounds] = given(count, arguments);
    float *y = filled<float>(n);
    for (int round = 0; round < rounds; round++) {
        positive<<<(n + 255) / 256, 256>>>(y, n);
        scaled<<<(n + 255) / 256, 256>>>(y, 1.0009765f, n);
    }
    printed({words(y, n)});
}
