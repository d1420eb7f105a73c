// Arithmetic: m steps on values in registers. Each step pulls towards a fixed point, so that rounding does not grow.
#include "suite.cuh"

template <int CHAINS, class T> __device__ __forceinline__ T fma_chains(T seed, unsigned m) {
    T value[CHAINS];
#pragma unroll
    for (int c = 0; c < CHAINS; c++) value[c] = seed + T(c);
    for (unsigned k = 0; k < m; k++)
#pragma unroll
        for (int c = 0; c < CHAINS; c++) value[c] = fma(value[c], T(0.75), T(0.125));
    T sum = 0;
#pragma unroll
    for (int c = 0; c < CHAINS; c++) sum += value[c];
    return sum;
}

KERNEL fma_f32_1(const float *x, const float *, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) out[i] = fma_chains<1>(x[i], m);
}
KERNEL fma_f32_4(const float *x, const float *, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) out[i] = fma_chains<4>(x[i], m);
}
KERNEL fma_f32_32(const float *x, const float *, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) out[i] = fma_chains<32>(x[i], m);
}
// So many chains that few warps fit.
KERNEL fma_f32_96(const float *x, const float *, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) out[i] = fma_chains<96>(x[i], m);
}
KERNEL __maxnreg__(32) fma_f32_32_capped(const float *x, const float *, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) out[i] = fma_chains<32>(x[i], m);
}
KERNEL fma_f64_1(const double *x, const float *, double *out, unsigned n, unsigned m) {
    EACH_UNIT(i) out[i] = fma_chains<1>(x[i], m);
}
KERNEL fma_f64_8(const double *x, const float *, double *out, unsigned n, unsigned m) {
    EACH_UNIT(i) out[i] = fma_chains<8>(x[i], m);
}
KERNEL __launch_bounds__(512, 4) fma_f64_8_capped(const double *x, const float *, double *out, unsigned n, unsigned m) {
    EACH_UNIT(i) out[i] = fma_chains<8>(x[i], m);
}

KERNEL half_fma(const __half2 *x, const float *, __half2 *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        __half2 value = x[i], factor = __float2half2_rn(0.75f), term = __float2half2_rn(0.125f);
        for (unsigned k = 0; k < m; k++) value = __hfma2(value, factor, term);
        out[i] = value;
    }
}

KERNEL integer_mad(const float *, const unsigned *y, unsigned *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        unsigned value = y[i];
        for (unsigned k = 0; k < m; k++) value = value * 1664525u + 1013904223u;
        out[i] = value;
    }
}

KERNEL integer_bits(const float *, const unsigned *y, unsigned *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        unsigned value = y[i];
        for (unsigned k = 0; k < m; k++) value = ((value << 7) | (value >> 25)) ^ (value & k) ^ __popc(value);
        out[i] = value;
    }
}

KERNEL integer_divide(const float *, const unsigned *y, unsigned *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        unsigned value = y[i];
        for (unsigned k = 0; k < m; k++) value = 0x9e3779b9u / ((value & 1023) + 1) + k;
        out[i] = value;
    }
}

// The special function units' own approximations.
KERNEL special_fast(const float *x, const float *, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        float value = x[i];
        for (unsigned k = 0; k < m; k++) value = 0.5f * __sinf(value) + 0.25f * __expf(-value * value);
        out[i] = value;
    }
}

// The library's functions, to a unit in the last place or two.
KERNEL special_accurate(const float *x, const float *, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        float value = x[i];
        for (unsigned k = 0; k < m; k++) value = 0.5f * sinf(value) + 0.25f * logf(2.0f + value);
        out[i] = value;
    }
}

KERNEL special_f64(const double *x, const float *, double *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        double value = x[i];
        for (unsigned k = 0; k < m; k++) value = 0.5 * tanh(value) + 0.25 * exp(-value * value);
        out[i] = value;
    }
}

KERNEL divide_sqrt(const float *x, const float *, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        float value = x[i];
        for (unsigned k = 0; k < m; k++) value = sqrtf(value * value + 1.0f) / (2.0f + value * value);
        out[i] = value;
    }
}

// A rational function of high degree: many constants, no loop over m but over the units.
KERNEL polynomial(const float *x, const float *, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        float value = x[i];
        for (unsigned k = 0; k < m; k++) {
            float sum = 0.01f;
#pragma unroll
            for (int degree = 0; degree < 16; degree++) sum = fmaf(sum, value * 0.5f, 0.03f * (float)(degree % 5));
            value = sum;
        }
        out[i] = value;
    }
}
