// Eight blocks do the work of a whole device.
//
// Cause: the grid is too small. Remedy: more blocks, with less work for each thread.
#include "corpus.h"

__global__ void square(float *data, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) data[i] *= data[i];
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 24, 1 << 16), blocks = remedy ? sized(132 * 8, 256) : 8;
        float *data = device_array<float>(n);
        return [=] { square<<<blocks, 256>>>(data, n); };
    });
}
