// Shared memory: a tile of one word for each thread, used m ways.
#include "suite.cuh"

// Word t * m of the tile: m decides how many lanes meet in a bank.
KERNEL banks_stride(const float *x, const float *, float *out, unsigned n, unsigned m) {
    float *tile = dynamic_shared<float>();
    unsigned t = thread_of_block(), threads = threads_of_block();
    EACH_BLOCK_UNIT(b, (n + threads - 1) / threads) {
        unsigned i = b * threads + t;
        tile[t] = i < n ? x[i] : 0.0f;
        __syncthreads();
        float sum = 0;
        for (unsigned k = 0; k < 32; k++) sum += tile[(t * m + k) % threads];
        if (i < n) out[i] = sum;
        __syncthreads();
    }
}

// All lanes the same word.
KERNEL banks_broadcast(const float *x, const float *, float *out, unsigned n, unsigned m) {
    float *tile = dynamic_shared<float>();
    unsigned t = thread_of_block(), threads = threads_of_block();
    EACH_BLOCK_UNIT(b, (n + threads - 1) / threads) {
        unsigned i = b * threads + t;
        tile[t] = i < n ? x[i] : 0.0f;
        __syncthreads();
        float sum = 0;
        for (unsigned k = 0; k < m; k++) sum += tile[k % threads];
        if (i < n) out[i] = sum;
        __syncthreads();
    }
}

// m rounds of passing values to a neighbour, each with two barriers.
KERNEL barrier_ring(const float *x, const float *, float *out, unsigned n, unsigned m) {
    float *tile = dynamic_shared<float>();
    unsigned t = thread_of_block(), threads = threads_of_block();
    EACH_BLOCK_UNIT(b, (n + threads - 1) / threads) {
        unsigned i = b * threads + t;
        float value = i < n ? x[i] : 0.0f;
        for (unsigned k = 0; k < m; k++) {
            tile[t] = value;
            __syncthreads();
            value = 0.5f * (value + tile[(t + 1) % threads]);
            __syncthreads();
        }
        if (i < n) out[i] = value;
    }
}

// Shuffles instead of shared memory: m rounds within a warp.
KERNEL shuffle_ring(const float *x, const float *, float *out, unsigned n, unsigned m) {
    EACH_WARP_UNIT(w, (n + 31) / 32) {
        unsigned i = w * 32 + lane();
        float value = i < n ? x[i] : 0.0f;
        for (unsigned k = 0; k < m; k++) value = 0.5f * (value + __shfl_sync(~0u, value, (lane() + 1) % 32));
        if (i < n) out[i] = value;
    }
}

__device__ __forceinline__ void copy_async(float *to, const float *from) {
    unsigned address = __cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address), "l"(from) : "memory");
}

// Asynchronous copies to shared memory, two tiles in turn; m uses of each word.
KERNEL async_tiles(const float *x, const float *, float *out, unsigned n, unsigned m) {
    float *tiles = dynamic_shared<float>();
    unsigned t = thread_of_block(), threads = threads_of_block(), units = (n + threads - 1) / threads, turn = 0;
    auto fetch = [&](unsigned b, float *tile) {
        unsigned i = b * threads + t;
        if (b < units && i < n) copy_async(tile + t, x + i);
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    fetch(block_of_grid(), tiles);
    EACH_BLOCK_UNIT(b, units) {
        fetch(b + blocks_of_grid(), tiles + (turn ^ 1) * threads);
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        unsigned i = b * threads + t, filled = min(threads, n - b * threads);
        float sum = 0;
        for (unsigned k = 0; k < m; k++) sum += tiles[turn * threads + (t + k) % filled];
        if (i < n) out[i] = sum;
        __syncthreads();
        turn ^= 1;
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
}
