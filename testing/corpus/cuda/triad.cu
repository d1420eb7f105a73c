// STREAM's triad over long vectors, with blocks that fill the device.
//
// Cause: none: memory is as busy as it can be. Remedy: none.
#include "corpus.h"

__global__ void triad(float4 *a, const float4 *b, const float4 *c, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 x = b[i], y = c[i];
    a[i] = {x.x + by * y.x, x.y + by * y.y, x.z + by * y.z, x.w + by * y.w};
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool) -> Step {
        int n = sized(1 << 24, 1 << 10);
        float4 *a = device_array<float4>(n), *b = device_array<float4>(n), *c = device_array<float4>(n);
        return [=] { triad<<<(n + 255) / 256, 256>>>(a, b, c, 1.5f, n); };
    });
}
