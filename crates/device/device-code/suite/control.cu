// Control flow that differs between the lanes of a warp, and sorting.
#include "suite.cuh"

// Lanes take one of m ways, one after the other.
KERNEL branch_ways(const float *x, const float *, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        float value = x[i];
        for (unsigned way = 0; way < m; way++)
            if (i % m == way)
                for (unsigned k = 0; k < 64; k++) value = fmaf(value, 0.75f, 0.01f * (float)way);
        out[i] = value;
    }
}

// Each lane its own number of steps, fewer than m.
KERNEL branch_loop(const float *x, const unsigned *y, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        float value = x[i];
        for (unsigned k = 0, steps = y[i] % m; k < steps; k++) value = fmaf(value, 0.75f, 0.125f);
        out[i] = value;
    }
}

// Warps, not lanes, have different work: m - 1 steps more for one in eight.
KERNEL branch_warps(const float *x, const float *, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        float value = x[i];
        for (unsigned k = 0, steps = i / 32 % 8 == 0 ? m : 1; k < steps; k++) value = fmaf(value, 0.75f, 0.125f);
        out[i] = value;
    }
}

// Steps of Collatz's sequence until 1, at most m.
KERNEL collatz(const float *, const unsigned *y, unsigned *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        unsigned value = y[i] % 4096 + 1, steps = 0;
        while (value != 1 && steps < m) {
            value = value % 2 == 0 ? value / 2 : 3 * value + 1;
            steps++;
        }
        out[i] = steps;
    }
}

// Iterations until the point of x and y leaves the circle, at most m.
KERNEL mandelbrot(const float *x, const float *y, unsigned *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        float a = x[i] * 1.5f - 0.5f, b = y[i], re = 0, im = 0;
        unsigned steps = 0;
        while (steps < m) {
            float re2 = __fmul_rn(re, re), im2 = __fmul_rn(im, im);
            if (__fadd_rn(re2, im2) > 4.0f) break;
            im = __fmaf_rn(__fmul_rn(2.0f, re), im, b);
            re = __fadd_rn(__fsub_rn(re2, im2), a);
            steps++;
        }
        out[i] = steps;
    }
}

// Each block, of a power of two threads, sorts tiles of as many words in shared memory.
KERNEL bitonic_block(const float *x, const float *, float *out, unsigned n, unsigned) {
    float *tile = dynamic_shared<float>();
    unsigned t = thread_of_block(), threads = threads_of_block();
    EACH_BLOCK_UNIT(b, (n + threads - 1) / threads) {
        unsigned i = b * threads + t;
        tile[t] = i < n ? x[i] : __int_as_float(0x7f800000);
        __syncthreads();
        for (unsigned run = 2; run <= threads; run *= 2)
            for (unsigned distance = run / 2; distance > 0; distance /= 2) {
                unsigned other = t ^ distance;
                if (other > t) {
                    float low = tile[t], high = tile[other];
                    if ((low > high) == ((t & run) == 0)) {
                        tile[t] = high;
                        tile[other] = low;
                    }
                }
                __syncthreads();
            }
        if (i < n) out[i] = tile[t];
        __syncthreads();
    }
}

// One pass over pairs m apart; n is a multiple of 2 * m, m a power of two.
KERNEL bitonic_pass(const float *x, const float *, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        float own = x[i], other = x[i ^ m];
        out[i] = (i & m) == 0 ? fminf(own, other) : fmaxf(own, other);
    }
}

// Each thread sorts 8 words of its own by insertion.
KERNEL insertion_sort(const float *x, const float *, float *out, unsigned n, unsigned) {
    EACH_UNIT(i) {
        float own[8];
#pragma unroll
        for (int k = 0; k < 8; k++) own[k] = x[(size_t)i * 8 + k];
        for (int k = 1; k < 8; k++) {
            float value = own[k];
            int at = k;
            for (; at > 0 && own[at - 1] > value; at--) own[at] = own[at - 1];
            own[at] = value;
        }
#pragma unroll
        for (int k = 0; k < 8; k++) out[(size_t)i * 8 + k] = own[k];
    }
}
