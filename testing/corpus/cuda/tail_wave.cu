// The blocks fill the device once, and a few are left: the second wave is nearly empty and takes as long as the first.
//
// Cause: tail wave. Remedy: four times as many blocks with a quarter of the work.
#include "corpus.h"

__global__ void __launch_bounds__(1024, 2) compute(float *data, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = data[i];
    for (int k = 0; k < rounds; k++) x = x * 0.999f + 0.5f;
    data[i] = x;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int device, sms;
        CUDA(cudaGetDevice(&device));
        CUDA(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
        int blocks = 2 * sms + 4, rounds = sized(40000, 8);
        float *data = device_array<float>(size_t(blocks) * 1024);
        if (remedy) return [=] { compute<<<blocks * 8, 128>>>(data, rounds); };
        return [=] { compute<<<blocks, 1024>>>(data, rounds); };
    });
}
