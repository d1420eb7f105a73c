// What the kernels of the suite share.
//
// Every kernel has the same parameters: two inputs, an output, a number of units `n` and a parameter `m` whose meaning is
// the kernel's own (steps, stride, row length, bins). Every kernel does all n units for any grid and, within what the suite
// declares for it, any block: threads, warps or blocks stride over the units. Blocks and grids of several dimensions are
// numbered x first.
#pragma once
#include <cuda_fp16.h>

#define KERNEL extern "C" __global__ void

__device__ __forceinline__ unsigned threads_of_block() { return blockDim.x * blockDim.y * blockDim.z; }

__device__ __forceinline__ unsigned thread_of_block() {
    return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}

__device__ __forceinline__ unsigned blocks_of_grid() { return gridDim.x * gridDim.y * gridDim.z; }

__device__ __forceinline__ unsigned block_of_grid() {
    return (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
}

// Units done by single threads.
#define EACH_UNIT(i)                                                                                   \
    for (unsigned i = block_of_grid() * threads_of_block() + thread_of_block(),                        \
                  stride_##i = blocks_of_grid() * threads_of_block();                                  \
         i < n; i += stride_##i)

// Units done by whole blocks.
#define EACH_BLOCK_UNIT(i, units) \
    for (unsigned i = block_of_grid(); i < (units); i += blocks_of_grid())

// Units done by whole warps: blocks are multiples of 32 threads.
#define EACH_WARP_UNIT(i, units)                                                                       \
    for (unsigned i = (block_of_grid() * threads_of_block() + thread_of_block()) / 32,                 \
                  stride_##i = blocks_of_grid() * threads_of_block() / 32;                             \
         i < (units); i += stride_##i)

__device__ __forceinline__ unsigned lane() { return thread_of_block() % 32; }

__device__ __forceinline__ float warp_sum(float value) {
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(~0u, value, distance);
    return value;
}

__device__ __forceinline__ float warp_max(float value) {
    for (int distance = 16; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(~0u, value, distance));
    return value;
}

// Dynamic shared memory: of the size that the suite computes from block and parameter.
template <class T> __device__ __forceinline__ T *dynamic_shared() {
    extern __shared__ double2 bytes_of_block[];
    return reinterpret_cast<T *>(bytes_of_block);
}

// Combines one value of each thread of a block of any size in `slots`, one for each thread; all threads get the result.
template <class T, class Combine> __device__ T block_reduce(T *slots, T value, Combine combine) {
    unsigned t = thread_of_block(), threads = threads_of_block();
    slots[t] = value;
    __syncthreads();
    for (unsigned half = 512; half > 0; half /= 2) {
        if (t < half && t + half < threads) slots[t] = combine(slots[t], slots[t + half]);
        __syncthreads();
    }
    T result = slots[0];
    __syncthreads();
    return result;
}

struct Sum {
    template <class T> __device__ T operator()(T a, T b) const { return a + b; }
};

struct Maximum {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
