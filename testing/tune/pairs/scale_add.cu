// A product in one kernel, a sum in the next: joined carelessly, both would be rounded once.
#include "pairs.h"

extern "C" __global__ void scale(float *t, const float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        t[i] = a * x[i];
    }
}

extern "C" __global__ void add(float *y, const float *t, const float *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = t[i] + b[i];
    }
}

int main(int count, char **arguments) {
    auto [n, rounds] = given(count, arguments);
    float *x = filled<float>(n), *b = filled<float>(n), *t = filled<float>(n), *y = filled<float>(n);
    for (int round = 0; round < rounds; round++) {
        scale<<<(n + 255) / 256, 256>>>(t, x, 1.0009765f, n);
        add<<<(n + 255) / 256, 256>>>(y, t, b, n);
    }
    printed({words(t, n), words(y, n)});
}
