// One block for each multiprocessor, whose warps wait at a barrier after every few instructions.
//
// Cause: no second block to work while the first one waits. Remedy: eight smaller blocks for each multiprocessor.
#include "corpus.h"

__global__ void smooth(const float *in, float *out, int n, int rounds) {
    __shared__ float line[258];
    if (threadIdx.x < 2) line[threadIdx.x * 257] = 0;
    for (int base = blockIdx.x * 256; base < n; base += gridDim.x * 256) {
        line[threadIdx.x + 1] = in[base + threadIdx.x];
        for (int k = 0; k < rounds; k++) {
            __syncthreads();
            float next = 0.25f * line[threadIdx.x] + 0.5f * line[threadIdx.x + 1] + 0.25f * line[threadIdx.x + 2];
            __syncthreads();
            line[threadIdx.x + 1] = next;
        }
        out[base + threadIdx.x] = line[threadIdx.x + 1];
        __syncthreads();
    }
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int device, sms;
        CUDA(cudaGetDevice(&device));
        CUDA(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
        int blocks = sms * (remedy ? 8 : 1), n = sms * 256 * sized(512, 8);
        float *in = device_array<float>(n), *out = device_array<float>(n);
        return [=] { smooth<<<blocks, 256>>>(in, out, n, 8); };
    });
}
