// Each iteration captures its kernels into a graph, instantiates it, launches it once, and destroys it.
//
// Cause: a graph is instantiated for one launch. Remedy: one instance is launched in every iteration.
#include "corpus.h"

__global__ void shift(float *data, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] = data[i] * 0.5f + 1.0f;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 16, 1 << 8);
        float *data = device_array<float>(n);
        cudaStream_t stream;
        CUDA(cudaStreamCreate(&stream));
        auto instantiate = [=] {
            cudaGraph_t graph;
            cudaGraphExec_t instance;
            CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
            for (int i = 0; i < 40; i++) shift<<<(n + 255) / 256, 256, 0, stream>>>(data, n);
            CUDA(cudaStreamEndCapture(stream, &graph));
            CUDA(cudaGraphInstantiate(&instance, graph, 0));
            CUDA(cudaGraphDestroy(graph));
            return instance;
        };
        cudaGraphExec_t once = instantiate();
        return [=] {
            cudaGraphExec_t instance = remedy ? once : instantiate();
            CUDA(cudaGraphLaunch(instance, stream));
            if (remedy) return;
            CUDA(cudaStreamSynchronize(stream));
            CUDA(cudaGraphExecDestroy(instance));
        };
    });
}
