// n rows of m words, as networks and sparse matrices have them.
#include "suite.cuh"

// A block for each row.
KERNEL softmax_block(const float *x, const float *, float *out, unsigned n, unsigned m) {
    float *slots = dynamic_shared<float>();
    unsigned t = thread_of_block(), threads = threads_of_block();
    EACH_BLOCK_UNIT(row, n) {
        const float *in = x + (size_t)row * m;
        float largest = -1e30f, sum = 0;
        for (unsigned k = t; k < m; k += threads) largest = fmaxf(largest, in[k]);
        largest = block_reduce(slots, largest, Maximum());
        for (unsigned k = t; k < m; k += threads) sum += __expf(in[k] - largest);
        sum = block_reduce(slots, sum, Sum());
        for (unsigned k = t; k < m; k += threads) out[(size_t)row * m + k] = __expf(in[k] - largest) / sum;
    }
}

// A warp for each row.
KERNEL softmax_warp(const float *x, const float *, float *out, unsigned n, unsigned m) {
    EACH_WARP_UNIT(row, n) {
        const float *in = x + (size_t)row * m;
        float largest = -1e30f, sum = 0;
        for (unsigned k = lane(); k < m; k += 32) largest = fmaxf(largest, in[k]);
        largest = warp_max(largest);
        for (unsigned k = lane(); k < m; k += 32) sum += __expf(in[k] - largest);
        sum = warp_sum(sum);
        for (unsigned k = lane(); k < m; k += 32) out[(size_t)row * m + k] = __expf(in[k] - largest) / sum;
    }
}

KERNEL layernorm_block(const float *x, const float *y, float *out, unsigned n, unsigned m) {
    float *slots = dynamic_shared<float>();
    unsigned t = thread_of_block(), threads = threads_of_block();
    EACH_BLOCK_UNIT(row, n) {
        const float *in = x + (size_t)row * m;
        float sum = 0, squares = 0;
        for (unsigned k = t; k < m; k += threads) sum += in[k];
        float mean = block_reduce(slots, sum, Sum()) / (float)m;
        for (unsigned k = t; k < m; k += threads) squares += (in[k] - mean) * (in[k] - mean);
        float scale = rsqrtf(block_reduce(slots, squares, Sum()) / (float)m + 1e-5f);
        for (unsigned k = t; k < m; k += threads) out[(size_t)row * m + k] = (in[k] - mean) * scale * y[k];
    }
}

KERNEL rmsnorm_warp(const float *x, const float *y, float *out, unsigned n, unsigned m) {
    EACH_WARP_UNIT(row, n) {
        const float *in = x + (size_t)row * m;
        float squares = 0;
        for (unsigned k = lane(); k < m; k += 32) squares += in[k] * in[k];
        float scale = rsqrtf(warp_sum(squares) / (float)m + 1e-5f);
        for (unsigned k = lane(); k < m; k += 32) out[(size_t)row * m + k] = in[k] * scale * y[k];
    }
}

KERNEL gelu(const float *x, const float *y, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        float value = x[i] + y[i % m];
        out[i] = 0.5f * value * (1.0f + erff(value * 0.70710678f));
    }
}

// A warp copies the row that y names.
KERNEL embedding(const float *x, const unsigned *y, float *out, unsigned n, unsigned m) {
    EACH_WARP_UNIT(row, n) {
        const float *from = x + (size_t)(y[row] % n) * m;
        for (unsigned k = lane(); k < m; k += 32) out[(size_t)row * m + k] = from[k];
    }
}

KERNEL argmax_warp(const float *x, const float *, unsigned *out, unsigned n, unsigned m) {
    EACH_WARP_UNIT(row, n) {
        const float *in = x + (size_t)row * m;
        float best = -1e30f;
        unsigned at = 0;
        for (unsigned k = lane(); k < m; k += 32)
            if (in[k] > best) best = in[k], at = k;
        for (int distance = 16; distance > 0; distance /= 2) {
            float other = __shfl_xor_sync(~0u, best, distance);
            unsigned other_at = __shfl_xor_sync(~0u, at, distance);
            if (other > best || (other == best && other_at < at)) best = other, at = other_at;
        }
        if (lane() == 0) out[row] = at;
    }
}

// Rows of 1 to m entries, each with a column in y, in padded storage: a thread for each row.
KERNEL sparse_thread(const float *x, const unsigned *y, float *out, unsigned n, unsigned m) {
    EACH_UNIT(row) {
        float sum = 0;
        for (unsigned k = 0, entries = y[row] % m + 1; k < entries; k++)
            sum = fmaf(x[row * m + k], x[y[row * m + k] % n], sum);
        out[row] = sum;
    }
}

// The same, a warp for each row.
KERNEL sparse_warp(const float *x, const unsigned *y, float *out, unsigned n, unsigned m) {
    EACH_WARP_UNIT(row, n) {
        float sum = 0;
        unsigned entries = y[row] % m + 1;
        for (unsigned k = lane(); k < entries; k += 32) sum = fmaf(x[row * m + k], x[y[row * m + k] % n], sum);
        sum = warp_sum(sum);
        if (lane() == 0) out[row] = sum;
    }
}

// Storage by columns, all rows of m entries: neighbours in order.
KERNEL sparse_columns(const float *x, const unsigned *y, float *out, unsigned n, unsigned m) {
    EACH_UNIT(row) {
        float sum = 0;
        for (unsigned k = 0; k < m; k++) sum = fmaf(x[k * n + row], x[y[k * n + row] % n], sum);
        out[row] = sum;
    }
}

// A filter with memory along each row: a thread for each, step after step.
KERNEL recurrence(const float *x, const float *, float *out, unsigned n, unsigned m) {
    EACH_UNIT(row) {
        float state = 0;
        for (unsigned k = 0; k < m; k++) {
            state = fmaf(state, 0.9f, 0.1f * x[(size_t)k * n + row]);
            out[(size_t)k * n + row] = state;
        }
    }
}

// n queries of 16 words over m keys and values, softmax on the way.
__device__ __forceinline__ void attend(const float *x, const float *y, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        float query[16], sums[16] = {}, largest = -1e30f, total = 0;
#pragma unroll
        for (int d = 0; d < 16; d++) query[d] = x[(size_t)i * 16 + d];
        for (unsigned k = 0; k < m; k++) {
            float score = 0;
#pragma unroll
            for (int d = 0; d < 16; d++) score = fmaf(query[d], y[k * 16 + d], score);
            float before = largest;
            largest = fmaxf(largest, score);
            float shrink = __expf(before - largest), weight = __expf(score - largest);
            total = fmaf(total, shrink, weight);
#pragma unroll
            for (int d = 0; d < 16; d++) sums[d] = fmaf(sums[d], shrink, weight * y[(m + k) * 16 + d]);
        }
#pragma unroll
        for (int d = 0; d < 16; d++) out[(size_t)i * 16 + d] = sums[d] / total;
    }
}

KERNEL attention(const float *x, const float *y, float *out, unsigned n, unsigned m) { attend(x, y, out, n, m); }
KERNEL __launch_bounds__(128, 12) attention_capped(const float *x, const float *y, float *out, unsigned n, unsigned m) {
    attend(x, y, out, n, m);
}
