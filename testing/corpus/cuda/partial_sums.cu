// A dot product in every iteration: blocks leave partial sums, which the host fetches and adds up.
//
// Cause: a synchronisation and a copy in every iteration. Remedy: a second kernel adds them, and
// the result stays on the device.
#include "corpus.h"

__global__ void partial(const float *a, const float *b, float *sums, int n) {
    __shared__ float tile[256];
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += a[i] * b[i];
    tile[threadIdx.x] = sum;
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) tile[threadIdx.x] += tile[threadIdx.x + half];
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = tile[0];
}

__global__ void scale(float *x, const float *y, const float *factor, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += y[i] * (factor ? *factor : by) * 1e-6f;
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 20, 1 << 12), blocks = 1024;
        float *a = device_array<float>(n), *b = device_array<float>(n), *sums = device_array<float>(blocks);
        float *ones = device_array<float>(blocks), *total = device_array<float>(1);
        auto host = std::make_shared<std::vector<float>>(blocks);
        std::vector<float> one(blocks, 1.0f);
        CUDA(cudaMemcpy(ones, one.data(), blocks * sizeof(float), cudaMemcpyHostToDevice));
        return [=] {
            partial<<<blocks, 256>>>(a, b, sums, n);
            float sum = 0;
            if (remedy) {
                partial<<<1, 256>>>(sums, ones, total, blocks);
            } else {
                CUDA(cudaMemcpy(host->data(), sums, blocks * sizeof(float), cudaMemcpyDeviceToHost));
                for (float s : *host) sum += s;
            }
            scale<<<(n + 255) / 256, 256>>>(a, b, remedy ? total : nullptr, sum, n);
        };
    });
}
