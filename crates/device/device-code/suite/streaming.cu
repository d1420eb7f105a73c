// Memory in order: each element is read or written once.
#include "suite.cuh"

KERNEL copy_f32(const float *x, const float *, float *out, unsigned n, unsigned) { EACH_UNIT(i) out[i] = x[i]; }

// A unit is four words: one access of 16 bytes.
KERNEL copy_v4(const float4 *x, const float *, float4 *out, unsigned n, unsigned) { EACH_UNIT(i) out[i] = x[i]; }

KERNEL copy_f64(const double *x, const float *, double *out, unsigned n, unsigned) { EACH_UNIT(i) out[i] = x[i]; }

KERNEL copy_f16(const __half *x, const float *, __half *out, unsigned n, unsigned) { EACH_UNIT(i) out[i] = x[i]; }

KERNEL axpy_f32(const float *x, const float *y, float *out, unsigned n, unsigned) {
    EACH_UNIT(i) out[i] = fmaf(2.5f, x[i], y[i]);
}

KERNEL axpy_v4(const float4 *x, const float4 *y, float4 *out, unsigned n, unsigned) {
    EACH_UNIT(i) {
        float4 a = x[i], b = y[i];
        out[i] = make_float4(fmaf(2.5f, a.x, b.x), fmaf(2.5f, a.y, b.y), fmaf(2.5f, a.z, b.z), fmaf(2.5f, a.w, b.w));
    }
}

KERNEL axpy_f64(const double *x, const double *y, double *out, unsigned n, unsigned) {
    EACH_UNIT(i) out[i] = fma(2.5, x[i], y[i]);
}

// Writes only.
KERNEL store_f32(const float *, const float *, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) out[i] = (float)(i % 1024 + m);
}

// Reads m words for each word written; the threads of a warp read neighbours.
KERNEL load_f32(const float *x, const float *, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        float sum = 0;
        for (unsigned k = 0; k < m; k++) sum += x[(size_t)k * n + i];
        out[i] = sum;
    }
}

// The same, four loads in flight.
KERNEL load_f32_unrolled(const float *x, const float *, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        float sum[4] = {};
        for (unsigned k = 0; k < m; k += 4)
#pragma unroll
            for (unsigned j = 0; j < 4; j++) sum[j] += x[(size_t)(k + j) * n + i];
        out[i] = sum[0] + sum[1] + sum[2] + sum[3];
    }
}

// Bytes to words: narrow loads.
KERNEL bytes_widen(const unsigned char *x, const float *, unsigned *out, unsigned n, unsigned) {
    EACH_UNIT(i) out[i] = x[i] * 257u;
}
