// Memory out of order: strides, indices, chains of dependent loads.
#include "suite.cuh"

KERNEL stride_load(const float *x, const float *, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) out[i] = x[(size_t)i * m];
}

// n is a multiple of m: columns of m rows are written down.
KERNEL stride_store(const float *x, const float *, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) out[(i % (n / m)) * m + i / (n / m)] = x[i];
}

KERNEL gather_random(const float *x, const unsigned *y, float *out, unsigned n, unsigned) {
    EACH_UNIT(i) out[i] = x[y[i] % n];
}

// Indices within m words.
KERNEL gather_window(const float *x, const unsigned *y, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) out[i] = x[min(n - 1, i / m * m + y[i] % m)];
}

// n is a power of two: a permutation without locality.
KERNEL scatter_random(const float *x, const float *, float *out, unsigned n, unsigned) {
    EACH_UNIT(i) out[(i * 2654435761u) & (n - 1)] = x[i];
}

// n is a power of two: m dependent loads.
KERNEL chase_global(const float *, const unsigned *y, unsigned *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        unsigned at = i;
        for (unsigned k = 0; k < m; k++) at = (y[at] + k) & (n - 1);
        out[i] = at;
    }
}

// As above within 1024 words of shared memory.
KERNEL chase_shared(const float *, const unsigned *y, unsigned *out, unsigned n, unsigned m) {
    __shared__ unsigned table[1024];
    for (unsigned t = thread_of_block(); t < 1024; t += threads_of_block()) table[t] = y[t];
    __syncthreads();
    EACH_UNIT(i) {
        unsigned at = i & 1023;
        for (unsigned k = 0; k < m; k++) at = (table[at] + k) & 1023;
        out[i] = at;
    }
}

// A binary tree of m levels: the way down depends on what is read.
KERNEL tree_walk(const float *x, const float *y, unsigned *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        unsigned node = 0;
        float key = y[i];
        for (unsigned level = 0; level < m; level++) node = 2 * node + (x[node] < key ? 2 : 1);
        out[i] = node;
    }
}

// A thread's own array, indexed by what is read: local memory.
KERNEL local_array(const float *x, const unsigned *y, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        float own[32];
        for (unsigned k = 0; k < 32; k++) own[k] = x[i] * (float)k;
        unsigned at = y[i];
        float sum = 0;
        for (unsigned k = 0; k < m; k++) {
            at = at * 1664525u + 1013904223u;
            float value = own[at >> 27];
            own[(at >> 22) & 31] = value * 0.5f + 0.25f;
            sum += value;
        }
        out[i] = sum;
    }
}

__constant__ float table[16] = {0.5f, -0.25f, 0.125f, 1.5f, -1.0f, 0.75f, 2.0f, -0.5f,
                                0.375f, 0.625f, -1.25f, 0.875f, 1.125f, -0.75f, 0.25f, 1.0f};

KERNEL constant_uniform(const float *x, const float *, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        float sum = x[i];
        for (unsigned k = 0; k < m; k++) sum = fmaf(sum, 0.5f, table[k & 15]);
        out[i] = sum;
    }
}

// Each lane its own element: the constant cache answers one after the other.
KERNEL constant_divergent(const float *x, const unsigned *y, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        float sum = x[i];
        unsigned at = y[i];
        for (unsigned k = 0; k < m; k++) sum = fmaf(sum, 0.5f, table[(at + k * 7) & 15]);
        out[i] = sum;
    }
}
