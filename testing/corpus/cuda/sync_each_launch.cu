// cudaDeviceSynchronize() after every launch, left over from debugging.
//
// Cause: a synchronisation after every launch. Remedy: none of them.
#include "corpus.h"

__global__ void add(float *data, float what, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] += what;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 20, 1 << 12);
        float *data = device_array<float>(n);
        return [=] {
            for (int i = 0; i < 200; i++) {
                add<<<(n + 255) / 256, 256>>>(data, 1.0f, n);
                if (!remedy) CUDA(cudaDeviceSynchronize());
            }
        };
    });
}
