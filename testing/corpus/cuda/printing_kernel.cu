// A kernel prints a line for values out of range, which a test left in: most launches print some hundred.
//
// Cause: printf in a kernel, and the host that formats it. Remedy: values out of range are counted.
#include "corpus.h"

__global__ void limit(float *data, int *count, int n, bool prints) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float value = data[i] * 1.5f + 0.1f;
    if (i % 2048 == 7) {
        if (prints) printf("value %d is %f\n", i, value);
        else atomicAdd(count, 1);
    }
    data[i] = fminf(value, 1.0f);
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        static bool quiet = [] { return freopen("/dev/null", "w", stderr) != nullptr; }();
        (void)quiet;
        int n = sized(1 << 20, 1 << 8);
        float *data = device_array<float>(n);
        int *count = device_array<int>(1);
        return [=] {
            limit<<<(n + 255) / 256, 256>>>(data, count, n, !remedy);
            CUDA(cudaDeviceSynchronize());
        };
    });
}
