// A function makes a stream and an event for each call, waits for the event and destroys both.
//
// Cause: the host makes and destroys a stream in every iteration and waits. Remedy: one stream, and no wait.
#include "corpus.h"

__global__ void touch(float *data, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) data[i] += 1;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 22, 1 << 12);
        float *data = device_array<float>(n);
        cudaStream_t kept;
        CUDA(cudaStreamCreate(&kept));
        return [=] {
            if (remedy) {
                touch<<<528, 256, 0, kept>>>(data, n);
                return;
            }
            cudaStream_t stream;
            cudaEvent_t done;
            CUDA(cudaStreamCreate(&stream));
            CUDA(cudaEventCreate(&done));
            touch<<<528, 256, 0, stream>>>(data, n);
            CUDA(cudaEventRecord(done, stream));
            CUDA(cudaEventSynchronize(done));
            CUDA(cudaEventDestroy(done));
            CUDA(cudaStreamDestroy(stream));
        };
    });
}
