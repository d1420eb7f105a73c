// Prefix sums in passes: each pass adds the value at twice the distance of the one before, and its result is
// copied back.
//
// Cause: copies within the device. Remedy: the next pass reads what the last one wrote.
#include "corpus.h"

__global__ void add_at(int distance, const int *from, int *to, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = from[i] + (i >= distance ? from[i - distance] : 0);
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 26, 1 << 16);
        int *values = device_array<int>(n, 1), *sums = device_array<int>(n);
        return [=]() mutable {
            for (int distance = 1; distance < n; distance *= 2) {
                add_at<<<n / 256, 256>>>(distance, values, sums, n);
                if (remedy) std::swap(values, sums);
                else CUDA(cudaMemcpyAsync(values, sums, n * sizeof(int), cudaMemcpyDeviceToDevice));
            }
        };
    });
}
