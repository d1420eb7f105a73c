// Kernels with one costly construct each, and beside each one that only looks like it: what `ptx::facts` must find and what it
// must not. compile.sh makes limits.ptx of this file.

#include <cstdio>

#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)

// Sums through shared memory, with a barrier in each step.
extern "C" __global__ void tree_sums(const float *in, float *out) {
    extern __shared__ float part[];
    int t = threadIdx.x;
    part[t] = in[INDEX];
    __syncthreads();
    for (unsigned stride = blockDim.x / 2; stride > 0; stride >>= 1) {
        if (t < stride) part[t] += part[t + stride];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = part[0];
}

// The largest value: the running one stays in a register.
extern "C" __global__ void tree_maxima(const float *in, float *out, int tiles) {
    __shared__ float part[256];
    int t = threadIdx.x;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        float most = in[tile * 256 + t];
        part[t] = most;
        __syncthreads();
        for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
            if (t < stride) part[t] = most = fmaxf(most, part[t + stride]);
            __syncthreads();
        }
        if (t == 0) out[tile] = part[0];
        __syncthreads();
    }
}

// One barrier, and shuffles.
extern "C" __global__ void shuffled_sums(const float *in, float *out) {
    __shared__ float part[32];
    float sum = in[INDEX];
    for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_down_sync(~0u, sum, apart);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    sum = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
    for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_down_sync(~0u, sum, apart);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

// The tree comes once, after a loop that may be long.
extern "C" __global__ void summed_first(const float *in, float *out, int n) {
    __shared__ float part[256];
    float sum = 0;
    for (int i = INDEX; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int stride = 128; stride > 0; stride /= 2) {
        if (threadIdx.x < stride) part[threadIdx.x] += part[threadIdx.x + stride];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}

// Neighbours exchange values in each round, which is no sum.
extern "C" __global__ void relaxation(float *data, int rounds) {
    __shared__ float cells[258];
    int t = threadIdx.x + 1;
    cells[t] = data[INDEX];
    __syncthreads();
    for (int round = 0; round < rounds; round++) {
        float next = 0.5f * cells[t] + 0.25f * (cells[t - 1] + cells[t + 1]);
        __syncthreads();
        cells[t] = next;
        __syncthreads();
    }
    data[INDEX] = cells[t];
}

// A transform: each step adds and subtracts.
extern "C" __global__ void butterflies(float *data) {
    __shared__ float cells[512];
    int t = threadIdx.x;
    cells[t] = data[INDEX];
    cells[t + 256] = data[INDEX + 256];
    for (int stride = 256; stride > 0; stride /= 2) {
        __syncthreads();
        int at = 2 * stride * (t / stride) + t % stride;
        float a = cells[at], b = cells[at + stride];
        cells[at] = a + b;
        cells[at + stride] = a - b;
    }
    __syncthreads();
    data[INDEX] = cells[t];
}

// All threads add to one number.
extern "C" __global__ void total_by_threads(const float *in, float *total, int n) {
    int i = INDEX;
    if (i < n) atomicAdd(total, in[i] * in[i]);
}

// One thread of each block adds to it.
extern "C" __global__ void total_by_blocks(const float *in, float *total, int n) {
    int i = INDEX;
    float sum = i < n ? in[i] * in[i] : 0;
    for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_down_sync(~0u, sum, apart);
    if (threadIdx.x % 32 == 0) atomicAdd(total, sum);
}

// Each block has its number, and so has each bin.
extern "C" __global__ void total_of_bins(const float *in, const int *bins, float *totals, int n) {
    int i = INDEX;
    if (i < n) atomicAdd(&totals[bins[i]], in[i]);
}

// The compiler adds the ones of a warp up.
extern "C" __global__ void counted(const float *in, int *count, int n) {
    int i = INDEX;
    if (i < n && in[i] > 0) atomicAdd(count, 1);
}

// A sum by compare-and-swap, as it was written for GPUs without an instruction for it.
__device__ double add_by_exchange(double *at, double value) {
    auto *words = reinterpret_cast<unsigned long long *>(at);
    unsigned long long old = *words, expected;
    do {
        expected = old;
        old = atomicCAS(words, expected, __double_as_longlong(value + __longlong_as_double(expected)));
    } while (expected != old);
    return __longlong_as_double(old);
}

extern "C" __global__ void exchanged_sums(const double *in, const int *bins, double *totals, int n) {
    int i = INDEX;
    if (i < n) add_by_exchange(&totals[bins[i]], in[i]);
}

// No instruction does this to a float.
extern "C" __global__ void exchanged_products(const float *in, const int *bins, int *totals, int n) {
    int i = INDEX;
    if (i >= n) return;
    int *at = &totals[bins[i]], old = *at, expected;
    do {
        expected = old;
        old = atomicCAS(at, expected, __float_as_int(in[i] * __int_as_float(expected)));
    } while (expected != old);
}

// A lock for each bin.
extern "C" __global__ void locked_bins(const float *in, const int *bins, int *locks, float *totals, int n) {
    int i = INDEX;
    if (i >= n) return;
    int bin = bins[i];
    bool done = false;
    while (!done) {
        if (atomicCAS(&locks[bin], 0, 1) == 0) {
            totals[bin] += in[i];
            __threadfence();
            atomicExch(&locks[bin], 0);
            done = true;
        }
    }
}

// A slot of a hash table is claimed by its key: no lock.
extern "C" __global__ void claimed_slots(const int *keys, int *slots, int size, int n) {
    int i = INDEX;
    if (i >= n) return;
    unsigned at = keys[i] * 2654435761u & (size - 1);
    while (true) {
        int there = atomicCAS(&slots[at], -1, keys[i]);
        if (there == -1 || there == keys[i]) return;
        at = at + 1 & (size - 1);
    }
}

// An array that is indexed by data.
extern "C" __global__ void local_histogram(const unsigned char *in, int *out, int n) {
    int counts[16];
    for (int k = 0; k < 16; k++) counts[k] = 0;
    for (int i = INDEX; i < n; i += gridDim.x * blockDim.x) counts[in[i] & 15]++;
    for (int k = 0; k < 16; k++) atomicAdd(&out[k], counts[k]);
}

// An array whose indices are known.
extern "C" __global__ void registers_only(const float *in, float *out, int n) {
    float window[8];
    int i = INDEX * 8;
    if (i + 8 > n) return;
#pragma unroll
    for (int k = 0; k < 8; k++) window[k] = in[i + k];
#pragma unroll
    for (int k = 0; k < 8; k++) out[i + k] = window[7 - k];
}

// The slow path of a sine has an array, and is taken for large arguments.
extern "C" __global__ void sines(const float *in, float *out, int n) {
    int i = INDEX;
    if (i < n) out[i] = sinf(in[i]);
}

// One thread of the block does the work of all.
extern "C" __global__ void one_adds(const float *in, float *out, int width) {
    if (threadIdx.x == 0) {
        float sum = 0;
        for (int k = 0; k < width; k++) sum += in[blockIdx.x * width + k];
        out[blockIdx.x] = sum;
    }
}

// All threads do it, and one adds up what they have.
extern "C" __global__ void all_add(const float *in, float *out, int width) {
    __shared__ float part[64];
    float sum = 0;
    for (int k = threadIdx.x; k < width; k += blockDim.x) sum += in[blockIdx.x * width + k];
    part[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int k = 1; k < blockDim.x; k++) sum += part[k];
        out[blockIdx.x] = sum;
    }
}

// A fence in each round.
extern "C" __global__ void fenced(const float *in, float *out, int width) {
    int i = INDEX;
    for (int k = 0; k < width; k++) {
        out[k * gridDim.x * blockDim.x + i] = in[k * gridDim.x * blockDim.x + i] * 2;
        __threadfence();
    }
}

// The last block adds up what the others left: one fence.
extern "C" __global__ void last_block(const float *in, float *out, unsigned *done, int n) {
    __shared__ bool is_last;
    float sum = 0;
    for (int i = INDEX; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    sum = __reduce_add_sync(~0u, int(sum));
    if (threadIdx.x == 0) {
        out[blockIdx.x] = sum;
        __threadfence();
        is_last = atomicAdd(done, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (is_last && threadIdx.x == 0) out[0] = *done;
}

// A product of matrices out of global memory.
extern "C" __global__ void untiled_product(const float *a, const float *b, float *c, int m, int n, int k) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m || column >= n) return;
    float sum = 0;
    for (int i = 0; i < k; i++) sum += a[row * k + i] * b[i * n + column];
    c[row * n + column] = sum;
}

// The same with a tile of 16 by 16.
extern "C" __global__ void tiled_product(const float *a, const float *b, float *c, int n) {
    __shared__ float s[16][16], t[16][17];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (int from = 0; from < n; from += 16) {
        s[threadIdx.y][threadIdx.x] = a[row * n + from + threadIdx.x];
        t[threadIdx.y][threadIdx.x] = b[(from + threadIdx.y) * n + column];
        __syncthreads();
        for (int i = 0; i < 16; i++) sum += s[threadIdx.y][i] * t[i][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

// A product with a vector: each number of the matrix is used once.
extern "C" __global__ void matrix_by_vector(const float *a, const float *x, float *y, int m, int n) {
    int row = INDEX;
    if (row >= m) return;
    float sum = 0;
    for (int i = 0; i < n; i++) sum += a[i * m + row] * x[i];
    y[row] = sum;
}

// A row of a sparse matrix for each thread.
extern "C" __global__ void rows_by_threads(const int *starts, const int *columns, const float *values, const float *x,
                                           float *y, int rows) {
    int row = INDEX;
    if (row >= rows) return;
    float sum = 0;
    for (int k = starts[row]; k < starts[row + 1]; k++) sum += values[k] * x[columns[k]];
    y[row] = sum;
}

// A row for each warp.
extern "C" __global__ void rows_by_warps(const int *starts, const int *columns, const float *values, const float *x, float *y,
                                         int rows) {
    int row = INDEX / 32;
    if (row >= rows) return;
    float sum = 0;
    for (int k = starts[row] + threadIdx.x % 32; k < starts[row + 1]; k += 32) sum += values[k] * x[columns[k]];
    for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_down_sync(~0u, sum, apart);
    if (threadIdx.x % 32 == 0) y[row] = sum;
}

// Each thread gathers one value: data decide where.
extern "C" __global__ void gathered(const int *at, const float *in, float *out, int n) {
    int i = INDEX;
    if (i < n) out[i] = in[at[i]];
}

// Each thread prints.
extern "C" __global__ void prints(const float *in, int n) {
    int i = INDEX;
    if (i < n) printf("%d: %f\n", i, in[i]);
}
