// A filter's coefficients are copied to constant memory before each launch, although they rarely change.
//
// Cause: cudaMemcpyToSymbol waits in every iteration. Remedy: they are copied when they change.
#include "corpus.h"

__constant__ float coefficients[64];

__global__ void filter(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i + 64 > n) return;
    float sum = 0;
    for (int k = 0; k < 64; k++) sum += coefficients[k] * in[i + k];
    out[i] = sum;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 17, 1 << 9);
        float *in = device_array<float>(n), *out = device_array<float>(n);
        auto values = std::make_shared<std::vector<float>>(64, 0.015625f);
        CUDA(cudaMemcpyToSymbol(coefficients, values->data(), sizeof(coefficients)));
        return [=] {
            for (int channel = 0; channel < 8; channel++) {
                if (!remedy) CUDA(cudaMemcpyToSymbol(coefficients, values->data(), sizeof(coefficients)));
                filter<<<(n + 255) / 256, 256>>>(in, out, n);
            }
        };
    });
}
