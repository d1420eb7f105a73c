// Half precision and bfloat16.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void half_arithmetic(const __half *a, const __half *b, __half *out, float *wide) {
    int i = threadIdx.x;
    __half x = a[i], y = b[i];
    __half s = __hadd(x, y) + __hmul(x, y) - __hsub(y, x) + __hfma(x, y, x) + __hdiv(x, y);
    s += hsqrt(__habs(x)) + hexp(y) + hlog(__habs(x)) + hsin(x) + hcos(y) + hrcp(y) + h2exp2(__half2half2(x)).x;
    s += __hmin(x, y) + __hmax(x, y) + hfloor(x) + hceil(y) + hrint(x) + htrunc(y) + __hadd_sat(x, y);
    s = __hgt(x, y) ? s : __hneg(s);
    out[i] = __hisnan(s) ? x : s;
    wide[i] = __half2float(s) + __half2int_rn(x) + __half2ushort_rz(y) + __half2ll_rd(x);
}

extern "C" __global__ void half_pairs(const __half2 *a, const __half2 *b, __half2 *out) {
    int i = threadIdx.x;
    __half2 x = a[i], y = b[i];
    __half2 s = __hfma2(x, y, __hadd2(x, y));
    s = __hmul2(s, __hsub2(x, y));
    s = __hmin2(__hmax2(s, x), y);
    s = __hadd2(s, __hgt2(x, y));
    s = __hadd2(s, __lowhigh2highlow(s));
    if (__hbeq2(x, y)) s = __hneg2(__habs2(s));
    out[i] = __hadd2(s, __floats2half2_rn(1.0f * i, 0.5f));
}

extern "C" __global__ void half_from(const int *w, const float *f, const double *d, __half *out) {
    int i = threadIdx.x;
    out[i] = __int2half_rn(w[i]) + __float2half_rz(f[i]) + __float2half_ru(f[i]) + __double2half(d[i]) +
             __ushort2half_rd((unsigned short)w[i]);
}

#if __CUDA_ARCH__ >= 800
extern "C" __global__ void brain(const __nv_bfloat16 *a, const __nv_bfloat16 *b, __nv_bfloat16 *out, float *wide) {
    int i = threadIdx.x;
    __nv_bfloat16 x = a[i], y = b[i];
    __nv_bfloat16 s = __hadd(x, y) + __hmul(x, y) - __hfma(x, y, x) + __hmax(x, y) + __float2bfloat16(0.3f * i);
    __nv_bfloat162 p = __halves2bfloat162(x, y);
    p = __hfma2(p, p, __hadd2(p, p));
    out[i] = s + p.x + p.y + __hmin(x, y) + __float2bfloat16_rz(wide[i]);
    wide[i] = __bfloat162float(s) + __bfloat162int_rz(x);
}
#endif
