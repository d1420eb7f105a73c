// Each thread iterates as often as its own element asks for: a warp takes as long as its longest thread.
//
// Cause: branch divergence by trip counts. Remedy: elements are sorted by their trip count.
#include "corpus.h"

__global__ void iterate(const int *trips, float *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = 0.5f;
    for (int k = trips[i]; k > 0; k--) x = x * x - 0.7f;
    out[i] = x;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 22, 1 << 12);
        std::vector<int> trips(n);
        for (int i = 0; i < n; i++) trips[i] = remedy ? (i / (n / 32) == 0 ? 1024 : 8) : (i % 32 == 0 ? 1024 : 8);
        int *device = device_array<int>(n);
        float *out = device_array<float>(n);
        CUDA(cudaMemcpy(device, trips.data(), n * sizeof(int), cudaMemcpyHostToDevice));
        return [=] { iterate<<<n / 256, 256>>>(device, out); };
    });
}
