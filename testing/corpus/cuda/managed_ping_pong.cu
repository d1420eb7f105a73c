// Host and device take turns with an array in managed memory.
//
// Cause: pages move at every turn, and the host's part waits for them. Remedy: the device does the host's part, too.
#include "corpus.h"

__global__ void scale(float *data, int n, float by) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) data[i] *= by;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 22, 1 << 12);
        float *data;
        CUDA(cudaMallocManaged(&data, n * sizeof(float)));
        for (int i = 0; i < n; i++) data[i] = i;
        return [=] {
            scale<<<264, 256>>>(data, n, 1.5f);
            if (remedy) {
                scale<<<264, 256>>>(data, n, 0.5f);
                return;
            }
            CUDA(cudaDeviceSynchronize());
            for (int i = 0; i < n; i++) data[i] *= 0.5f;
        };
    });
}
