// Threads together: reductions, scans, histograms, votes, atomics.
#include "suite.cuh"

// A partial sum for each block, through shared memory.
KERNEL reduce_shared(const float *x, const float *, float *out, unsigned n, unsigned) {
    float sum = 0;
    EACH_UNIT(i) sum += x[i];
    sum = block_reduce(dynamic_shared<float>(), sum, Sum());
    if (thread_of_block() == 0) out[block_of_grid()] = sum;
}

// A partial sum for each block, by shuffles.
KERNEL reduce_shuffle(const float *x, const float *, float *out, unsigned n, unsigned) {
    __shared__ float sums[32];
    float sum = 0;
    EACH_UNIT(i) sum += x[i];
    sum = warp_sum(sum);
    unsigned warp = thread_of_block() / 32;
    if (lane() == 0) sums[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = warp_sum(lane() < threads_of_block() / 32 ? sums[lane()] : 0.0f);
        if (lane() == 0) out[block_of_grid()] = sum;
    }
}

// One sum, by an atomic for each thread.
KERNEL reduce_atomic(const float *x, const float *, float *out, unsigned n, unsigned) {
    float sum = 0;
    EACH_UNIT(i) sum += x[i];
    atomicAdd(out, sum);
}

KERNEL dot_f64(const double *x, const double *y, double *out, unsigned n, unsigned) {
    double sum = 0;
    EACH_UNIT(i) sum = fma(x[i], y[i], sum);
    sum = block_reduce(dynamic_shared<double>(), sum, Sum());
    if (thread_of_block() == 0) out[block_of_grid()] = sum;
}

// Inclusive sums within each tile of m words (m at most the block), log m rounds.
KERNEL scan_shared(const float *x, const float *, float *out, unsigned n, unsigned m) {
    float *tile = dynamic_shared<float>();
    unsigned t = thread_of_block(), threads = threads_of_block();
    unsigned used = threads / m * m;
    EACH_BLOCK_UNIT(b, (n + used - 1) / used) {
        unsigned i = b * used + t;
        bool live = t < used && i < n;
        float value = live ? x[i] : 0.0f;
        for (unsigned distance = 1; distance < m; distance *= 2) {
            tile[t] = value;
            __syncthreads();
            if (t % m >= distance) value += tile[t - distance];
            __syncthreads();
        }
        if (live) out[i] = value;
    }
}

// Inclusive sums within each 32 words, by shuffles.
KERNEL scan_shuffle(const float *x, const float *, float *out, unsigned n, unsigned) {
    EACH_WARP_UNIT(w, (n + 31) / 32) {
        unsigned i = w * 32 + lane();
        float value = i < n ? x[i] : 0.0f;
#pragma unroll
        for (unsigned distance = 1; distance < 32; distance *= 2) {
            float before = __shfl_up_sync(~0u, value, distance);
            if (lane() >= distance) value += before;
        }
        if (i < n) out[i] = value;
    }
}

KERNEL histogram_global(const float *, const unsigned *y, unsigned *out, unsigned n, unsigned m) {
    EACH_UNIT(i) atomicAdd(&out[y[i] % m], 1);
}

KERNEL histogram_shared(const float *, const unsigned *y, unsigned *out, unsigned n, unsigned m) {
    unsigned *bins = dynamic_shared<unsigned>();
    for (unsigned bin = thread_of_block(); bin < m; bin += threads_of_block()) bins[bin] = 0;
    __syncthreads();
    EACH_UNIT(i) atomicAdd(&bins[y[i] % m], 1);
    __syncthreads();
    for (unsigned bin = thread_of_block(); bin < m; bin += threads_of_block())
        if (bins[bin] != 0) atomicAdd(&out[bin], bins[bin]);
}

// m counters; a warp's threads use neighbours.
KERNEL atomic_add(const float *, const float *, unsigned *out, unsigned n, unsigned m) {
    EACH_UNIT(i) atomicAdd(&out[i % m], i & 7);
}

KERNEL atomic_max(const float *, const unsigned *y, unsigned *out, unsigned n, unsigned m) {
    EACH_UNIT(i) atomicMax(&out[i % m], y[i]);
}

// The same by compare and swap, again while another was faster.
KERNEL atomic_swap(const float *, const unsigned *y, unsigned *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        unsigned *counter = &out[y[i] % m], value = y[i], seen = *counter;
        while (seen < value) {
            unsigned found = atomicCAS(counter, seen, value);
            if (found == seen) break;
            seen = found;
        }
    }
}

// How many of each 32 are positive.
KERNEL vote_count(const float *x, const float *, unsigned *out, unsigned n, unsigned) {
    EACH_WARP_UNIT(w, (n + 31) / 32) {
        unsigned i = w * 32 + lane();
        unsigned votes = __ballot_sync(~0u, i < n && x[i] > 0.0f);
        if (lane() == 0) out[w] = __popc(votes);
    }
}
