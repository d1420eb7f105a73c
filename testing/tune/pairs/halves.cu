// The array between both kernels has half as many bytes as the others.
#include "pairs.h"
#include <cuda_fp16.h>

extern "C" __global__ void narrow(__half *h, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        h[i] = __float2half_rn(x[i]);
    }
}

extern "C" __global__ void widen(float *y, const __half *h, float s, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = __half2float(h[i]) * s;
    }
}

int main(int count, char **arguments) {
    auto [n, rounds] = given(count, arguments);
    float *x = filled<float>(n), *y = filled<float>(n);
    __half *h = reinterpret_cast<__half *>(filled<float>(n));
    for (int round = 0; round < rounds; round++) {
        narrow<<<(n + 255) / 256, 256>>>(h, x, n);
        widen<<<(n + 255) / 256, 256>>>(y, h, 3.0f, n);
    }
    printed({words(h, n / 2), words(y, n)});
}
