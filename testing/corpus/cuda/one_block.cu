// One block of 256 threads adds two long vectors, as the first example of many courses does.
//
// Cause: a grid that is too small. Remedy: a block for every 256 elements.
#include "corpus.h"

__global__ void add(int n, const float *x, float *y) {
    int stride = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) y[i] = x[i] + y[i];
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 22, 1 << 12);
        float *x = device_array<float>(n), *y = device_array<float>(n);
        return [=] { add<<<remedy ? (n + 255) / 256 : 1, 256>>>(n, x, y); };
    });
}
