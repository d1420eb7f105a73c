// Heat on a grid: each iteration writes a second grid, which is then copied onto the first.
//
// Cause: copies within the device. Remedy: the two pointers are swapped.
#include "corpus.h"

__global__ void diffuse(const float *from, float *to, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x == 0 || y == 0 || x >= n - 1 || y >= n - 1) return;
    const float *at = from + (size_t)y * n + x;
    to[(size_t)y * n + x] = at[0] + 0.2f * (at[1] + at[-1] + at[n] + at[-n] - 4 * at[0]);
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(8192, 64);
        size_t bytes = (size_t)n * n * sizeof(float);
        auto grids = std::make_shared<std::vector<float *>>(
            std::vector<float *>{device_array<float>((size_t)n * n), device_array<float>((size_t)n * n)});
        return [=] {
            float *&from = (*grids)[0], *&to = (*grids)[1];
            diffuse<<<dim3((n + 31) / 32, (n + 7) / 8), dim3(32, 8)>>>(from, to, n);
            if (remedy) std::swap(from, to);
            else CUDA(cudaMemcpyAsync(from, to, bytes, cudaMemcpyDeviceToDevice));
        };
    });
}
