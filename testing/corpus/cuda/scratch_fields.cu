// A solver takes its scratch fields from a pool in each step, gives them back, and waits for the error that it prints.
//
// Cause: the pool returns all free memory to the system at each wait, since its release threshold is zero. Remedy: a threshold.
#include "corpus.h"

__global__ void gradient(const float *field, float *slope, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) slope[i] = field[i + 1 < n ? i + 1 : 0] - field[i];
}

__global__ void relax(float *field, const float *slope, float *error, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float change = 0.25f * (slope[i] - slope[i > 0 ? i - 1 : n - 1]);
    field[i] += change;
    error[i] = fabsf(change);
}

__global__ void largest(const float *error, unsigned *result, int n) {
    float most = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) most = fmaxf(most, error[i]);
    for (int apart = 16; apart > 0; apart /= 2) most = fmaxf(most, __shfl_down_sync(~0u, most, apart));
    if (threadIdx.x % 32 == 0) atomicMax(result, __float_as_uint(most));
}

int main(int argc, char **argv) {
    return corpus(argc, argv, [](bool remedy) -> Step {
        int n = sized(1 << 26, 1 << 10);
        float *field = device_array<float>(n);
        unsigned *result = device_array<unsigned>(1), *host;
        CUDA(cudaMallocHost(&host, sizeof(unsigned)));
        cudaMemPoolProps properties = {};
        properties.allocType = cudaMemAllocationTypePinned;
        properties.location.type = cudaMemLocationTypeDevice;
        cudaMemPool_t pool;
        CUDA(cudaMemPoolCreate(&pool, &properties));
        unsigned long long kept = ~0ull;
        if (remedy) CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept));
        cudaStream_t stream;
        CUDA(cudaStreamCreate(&stream));
        return [=] {
            float *slope, *error;
            CUDA(cudaMallocFromPoolAsync((void **)&slope, n * sizeof(float), pool, stream));
            CUDA(cudaMallocFromPoolAsync((void **)&error, n * sizeof(float), pool, stream));
            CUDA(cudaMemsetAsync(result, 0, sizeof(unsigned), stream));
            gradient<<<(n + 255) / 256, 256, 0, stream>>>(field, slope, n);
            relax<<<(n + 255) / 256, 256, 0, stream>>>(field, slope, error, n);
            largest<<<sized(528, 2), 256, 0, stream>>>(error, result, n);
            CUDA(cudaMemcpyAsync(host, result, sizeof(unsigned), cudaMemcpyDeviceToHost, stream));
            CUDA(cudaFreeAsync(slope, stream));
            CUDA(cudaFreeAsync(error, stream));
            CUDA(cudaStreamSynchronize(stream));
        };
    });
}
