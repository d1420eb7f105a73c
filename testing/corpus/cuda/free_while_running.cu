// A buffer is freed while kernels run that take far longer than freeing it: the free waits for them.
//
// Cause: the kernel is what takes the time; the waiting free saves nothing. Remedy (that must not be promised to save): one
// buffer for all steps.
#include "corpus.h"

__global__ void long_kernel(float *data, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = data[i];
    for (int k = 0; k < rounds; k++) x = x * 0.999f + 0.5f;
    data[i] = x;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int blocks = sized(132 * 8, 32), rounds = sized(200000, 2000);
        size_t bytes = size_t(blocks) * 256 * sizeof(float);
        float *kept = device_array<float>(size_t(blocks) * 256);
        if (remedy) return [=] { long_kernel<<<blocks, 256>>>(kept, rounds); };
        return [=] {
            float *own;
            CUDA(cudaMalloc(&own, bytes));
            long_kernel<<<blocks, 256>>>(own, rounds);
            CUDA(cudaFree(own));
        };
    });
}
