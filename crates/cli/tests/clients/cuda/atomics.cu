// Atomics of every width in global and shared memory, a lock made of them, and the last block that finishes the work of
// all.
#include "check.h"
#include <algorithm>

__global__ void histogram(const uint8_t *in, int n, unsigned *bins) {
    __shared__ unsigned local[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[in[i]], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[i], local[i]);
}

struct Outcome {
    int least, most, exclusive;
    unsigned all, any, wrapped, counted_down;
    unsigned long long sum, largest;
    float single;
    double twice;
};

__global__ void every_operation(const int *in, int n, Outcome *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    atomicMin(&out->least, in[i]);
    atomicMax(&out->most, in[i]);
    atomicXor(&out->exclusive, in[i]);
    atomicAnd(&out->all, unsigned(in[i]) | 0xff00ff00u);
    atomicOr(&out->any, unsigned(in[i]) & 0x00ff00ffu);
    atomicInc(&out->wrapped, 99);
    atomicDec(&out->counted_down, 1000);
    atomicAdd(&out->sum, (unsigned long long)(unsigned)in[i]);
    atomicMax(&out->largest, (unsigned long long)(unsigned)in[i] << 16);
    atomicAdd(&out->single, 0.25f);
    atomicAdd_system(&out->twice, 0.125);
}

// A spin lock that lanes of one warp fight for: it ends only if each lane gets on by itself.
__global__ void locked(int *lock, double *value, int rounds) {
    for (int round = 0; round < rounds; round++) {
        bool mine = false;
        while (!mine) {
            if (atomicCAS(lock, 0, 1) == 0) {
                __threadfence();
                *(volatile double *)value = *(volatile double *)value * 1.0 + 1.0;
                __threadfence();
                mine = true;
                atomicExch(lock, 0);
            }
        }
    }
}

__device__ unsigned finished = 0;

__global__ void sum_all(const int *in, int n, long long *partial, long long *total) {
    __shared__ long long sums[128];
    __shared__ bool last;
    long long sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    sums[threadIdx.x] = sum;
    for (int half = 64; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sums[0];
        __threadfence();
        last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        *total = 0;
        for (int block = 0; block < gridDim.x; block++) *total += ((volatile long long *)partial)[block];
    }
}

int main() {
    Random random{7};
    const int n = 20000;
    std::vector<uint8_t> bytes = random.integers<uint8_t>(n, 256);
    std::vector<unsigned> bins(256);
    for (uint8_t byte : bytes) bins[byte]++;
    Device<uint8_t> device_bytes(bytes);
    Device<unsigned> device_bins(std::vector<unsigned>(256));
    LAUNCH(histogram<<<9, 160>>>(device_bytes.data, n, device_bins.data));
    expect_equal("bins", device_bins.host(), bins);

    const int m = 5000;
    std::vector<int> in(m);
    for (int &value : in) value = int(random.next());
    Outcome right = {INT32_MAX, INT32_MIN, 0, ~0u, 0, 0, 7, 0, 0, 0, 0};
    Device<Outcome> outcome(std::vector<Outcome>{right});
    for (int value : in) {
        right.least = std::min(right.least, value);
        right.most = std::max(right.most, value);
        right.exclusive ^= value;
        right.all &= unsigned(value) | 0xff00ff00u;
        right.any |= unsigned(value) & 0x00ff00ffu;
        right.wrapped = right.wrapped >= 99 ? 0 : right.wrapped + 1;
        right.counted_down = right.counted_down == 0 || right.counted_down > 1000 ? 1000 : right.counted_down - 1;
        right.sum += unsigned(value);
        right.largest = std::max(right.largest, (unsigned long long)unsigned(value) << 16);
        right.single += 0.25f;
        right.twice += 0.125;
    }
    Device<int> device_in(in);
    LAUNCH(every_operation<<<40, 128>>>(device_in.data, m, outcome.data));
    Outcome found = outcome.host()[0];
    EXPECT(found.least == right.least && found.most == right.most && found.exclusive == right.exclusive);
    EXPECT(found.all == right.all && found.any == right.any);
    EXPECT(found.wrapped == right.wrapped && found.counted_down == right.counted_down);
    EXPECT(found.sum == right.sum && found.largest == right.largest);
    EXPECT(found.single == right.single && found.twice == right.twice);

    Device<int> lock(std::vector<int>{0});
    Device<double> value(std::vector<double>{0});
    LAUNCH(locked<<<3, 64>>>(lock.data, value.data, 5));
    EXPECT(value.host()[0] == 3 * 64 * 5);

    long long sum = 0;
    for (int one : in) sum += one;
    Device<long long> partial(10), total(1);
    for (int round = 0; round < 3; round++) {
        LAUNCH(sum_all<<<10, 128>>>(device_in.data, m, partial.data, total.data));
        EXPECT(total.host()[0] == sum);
    }
    return done();
}
