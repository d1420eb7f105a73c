// Each iteration copies four bytes to the host to decide whether to go on.
//
// Cause: a synchronisation in every iteration. Remedy: decide in every 100th iteration.
#include "corpus.h"

__global__ void relax(const float *from, float *to, float *residual, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    to[i] = 0.5f * from[i] + 0.25f * (from[max(i - 1, 0)] + from[min(i + 1, n - 1)]);
    if (i == 0) *residual = fabsf(to[i] - from[i]);
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 20, 1 << 12);
        float *a = device_array<float>(n), *b = device_array<float>(n), *residual = device_array<float>(1);
        int every = remedy ? 100 : 1;
        return [=] {
            for (int iteration = 1; iteration <= 100; iteration++) {
                relax<<<(n + 255) / 256, 256>>>(a, b, residual, n);
                relax<<<(n + 255) / 256, 256>>>(b, a, residual, n);
                float host = 0;
                if (iteration % every == 0) CUDA(cudaMemcpy(&host, residual, sizeof host, cudaMemcpyDeviceToHost));
                if (host < 0) exit(1);
            }
        };
    });
}
