// A step is ten short kernels, each of which needs the one before; the sequence never changes.
//
// Cause: launch-bound. Remedy: the sequence is captured into a CUDA graph.
#include "corpus.h"

__global__ void relax(const float *from, float *to, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = 0.5f * from[i] + 0.25f * (from[max(i - 1, 0)] + from[min(i + 1, n - 1)]);
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = 132 * 256;
        float *a = device_array<float>(n), *b = device_array<float>(n);
        cudaStream_t stream;
        CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        auto sequence = [=] {
            for (int i = 0; i < 5; i++) {
                relax<<<132, 256, 0, stream>>>(a, b, n);
                relax<<<132, 256, 0, stream>>>(b, a, n);
            }
        };
        if (!remedy) return sequence;
        cudaGraph_t graph;
        cudaGraphExec_t executable;
        CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        sequence();
        CUDA(cudaStreamEndCapture(stream, &graph));
        CUDA(cudaGraphInstantiate(&executable, graph, 0));
        return [=] { CUDA(cudaGraphLaunch(executable, stream)); };
    });
}
