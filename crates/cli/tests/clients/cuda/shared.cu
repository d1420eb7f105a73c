// Shared memory: static tiles, dynamic sizes beyond 48 KiB, several arrays in one block's memory, warp shuffles.
#include "check.h"

template <int Tile> __global__ void multiply(const float *a, const float *b, float *c, int n) {
    __shared__ float tile_a[Tile][Tile], tile_b[Tile][Tile + 1];
    int row = blockIdx.y * Tile + threadIdx.y, column = blockIdx.x * Tile + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; k += Tile) {
        tile_a[threadIdx.y][threadIdx.x] = row < n && k + threadIdx.x < n ? a[row * n + k + threadIdx.x] : 0;
        tile_b[threadIdx.y][threadIdx.x] = column < n && k + threadIdx.y < n ? b[(k + threadIdx.y) * n + column] : 0;
        __syncthreads();
        for (int i = 0; i < Tile; i++) sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x];
        __syncthreads();
    }
    if (row < n && column < n) c[row * n + column] = sum;
}

// Sorts a block's keys and carries their values along: both lie in one dynamic allocation.
__global__ void sort_pairs(uint32_t *keys, uint16_t *values, int n) {
    extern __shared__ uint32_t memory[];
    uint32_t *key = memory;
    uint16_t *value = reinterpret_cast<uint16_t *>(memory + n);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        key[i] = keys[blockIdx.x * n + i];
        value[i] = uint16_t(i);
    }
    __syncthreads();
    for (int size = 2; size <= n; size *= 2)
        for (int stride = size / 2; stride > 0; stride /= 2) {
            for (int i = threadIdx.x; i < n; i += blockDim.x) {
                int other = i ^ stride;
                bool up = (i & size) == 0;
                if (other > i && (key[i] > key[other]) == up) {
                    uint32_t k = key[i];
                    key[i] = key[other];
                    key[other] = k;
                    uint16_t v = value[i];
                    value[i] = value[other];
                    value[other] = v;
                }
            }
            __syncthreads();
        }
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        keys[blockIdx.x * n + i] = key[i];
        values[blockIdx.x * n + i] = value[i];
    }
}

__global__ void sum_by_shuffles(const int *in, int *total, int n) {
    __shared__ int of_warp[32];
    int sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_down_sync(~0u, sum, distance);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < blockDim.x / 32 ? of_warp[threadIdx.x] : 0;
        for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
        if (threadIdx.x == 0) atomicAdd(total, sum);
    }
}

int main() {
    Random random{3};
    const int n = 75;
    std::vector<float> a = random.floats(n * n), b = random.floats(n * n), c(n * n);
    for (int row = 0; row < n; row++)
        for (int column = 0; column < n; column++) {
            double sum = 0;
            for (int k = 0; k < n; k++) sum += double(a[row * n + k]) * b[k * n + column];
            c[row * n + column] = float(sum);
        }
    Device<float> device_a(a), device_b(b), device_c(n * n);
    LAUNCH(multiply<16><<<dim3(5, 5), dim3(16, 16)>>>(device_a.data, device_b.data, device_c.data, n));
    expect_equal("c", device_c.host(), c, 1e-5);

    const int keys = 16384 / 2, blocks = 2, bytes = keys * 6 + keys * 2;
    std::vector<uint32_t> key = random.integers<uint32_t>(keys * blocks, ~0u);
    Device<uint32_t> device_key(key);
    Device<uint16_t> device_value(keys * blocks);
    sort_pairs<<<blocks, 256, bytes>>>(device_key.data, device_value.data, keys);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue); // More than 48 KiB must be asked for.
    CUDA(cudaFuncSetAttribute(sort_pairs, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    LAUNCH(sort_pairs<<<blocks, 256, bytes>>>(device_key.data, device_value.data, keys));
    std::vector<uint32_t> sorted = device_key.host();
    std::vector<uint16_t> places = device_value.host();
    for (int i = 0; i < keys * blocks; i++) {
        EXPECT(i % keys == 0 || sorted[i - 1] <= sorted[i]);
        EXPECT(key[i / keys * keys + places[i]] == sorted[i]);
    }

    const int m = 100000;
    std::vector<int> in = random.integers<int>(m, 1000);
    int right = 0;
    for (int value : in) right += value;
    Device<int> device_in(in), total(std::vector<int>{0});
    LAUNCH(sum_by_shuffles<<<12, 224>>>(device_in.data, total.data, m));
    EXPECT(total.host()[0] == right);

    cudaFuncAttributes attributes;
    CUDA(cudaFuncGetAttributes(&attributes, sum_by_shuffles));
    EXPECT(attributes.sharedSizeBytes == 32 * sizeof(int));
    return done();
}
