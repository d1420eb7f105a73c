// Integer and floating-point arithmetic, the math library, conversions.

extern "C" __global__ void integers(const int *a, const unsigned *b, long long *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int x = a[i];
    unsigned y = b[i];
    long long wide = (long long)x * (int)y + i;
    unsigned long long uwide = (unsigned long long)y * 0x9e3779b97f4a7c15ull;
    out[i * 8 + 0] = x / 7 + x % 13 + (int)(y / 10) + (int)(y % 1000);
    out[i * 8 + 1] = x / (int)(y | 1) + (int)(y % (x | 1));
    out[i * 8 + 2] = wide / (x | 1) + wide % 1000003;
    out[i * 8 + 3] = __popc(y) + __clz(x) * 64 + __ffs(x) * 4096 + (__brev(y) >> 7);
    out[i * 8 + 4] = __popcll(uwide) + __clzll(wide) + __ffsll(wide) + (__brevll(uwide) >> 11);
    out[i * 8 + 5] = __mulhi(x, (int)y) + __umulhi(x, y) + __mul24(x, (int)y) + __umul24(x, y);
    out[i * 8 + 6] = __umul64hi(uwide, wide) + __mul64hi(wide, uwide) + __sad(x, (int)y, 5) + __usad(x, y, 9);
    out[i * 8 + 7] = __byte_perm(x, y, 0x5410 ^ (i & 0x7777)) + __funnelshift_l(x, y, i) + __funnelshift_rc(x, y, i) +
                     max(x, (int)y) + min(x, (int)y) + umax(x, y) + umin(x, y) + abs(x) + __hadd(x, (int)y) +
                     __rhadd(x, (int)y) + (x << (y & 31)) + (x >> (y & 31)) + (y >> (x & 31));
}

extern "C" __global__ void dots(const int *a, const int *b, int *out) {
    int i = threadIdx.x;
    out[i] = __dp4a(a[i], b[i], i) + __dp4a((unsigned)a[i], (unsigned)b[i], (unsigned)i) + __dp2a_lo(a[i], b[i], i) +
             __dp2a_hi((unsigned)a[i], (unsigned)b[i], (unsigned)i);
    out[i] ^= __vadd4(a[i], b[i]) + __vabsdiffu4(a[i], b[i]) + __vmaxs2(a[i], b[i]) + __vcmpgtu4(a[i], b[i]);
}

extern "C" __global__ void singles(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = in[i], y = in[(i + 1) % n], z = in[(i + 2) % n];
    float s = x + y * z - x / y;
    s += sqrtf(fabsf(x)) + rsqrtf(fabsf(y) + 1) + cbrtf(z) + hypotf(x, y);
    s += expf(x) + exp2f(y) + expm1f(z) + logf(fabsf(x)) + log2f(fabsf(y)) + log10f(fabsf(z)) + log1pf(fabsf(x));
    s += sinf(x) + cosf(y) + tanf(z) + asinf(x) + acosf(y) + atanf(z) + atan2f(x, y);
    s += sinhf(x) + coshf(y) + tanhf(z) + powf(fabsf(x), y) + fmodf(x, y) + erff(x) + lgammaf(y);
    s += floorf(x) + ceilf(y) + truncf(z) + rintf(x) + roundf(y) + fminf(x, y) + fmaxf(y, z) + copysignf(x, y);
    s += __sinf(x) + __cosf(y) + __expf(z) + __logf(fabsf(x)) + __fdividef(x, y) + __powf(fabsf(y), z) + __saturatef(x);
    s += __fadd_rz(x, y) + __fmul_ru(y, z) + __fmaf_rd(x, y, z) + __fdiv_rz(x, y) + __fsqrt_ru(fabsf(x)) + __frcp_rd(y);
    s += isnan(x) + 2 * isinf(y) + 4 * signbit(z) + ldexpf(x, i & 7) + ilogbf(y) + nextafterf(x, y);
    out[i] = s;
}

extern "C" __global__ void doubles(const double *in, double *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double x = in[i], y = in[(i + 1) % n], z = in[(i + 2) % n];
    double s = x + y * z - x / y + sqrt(fabs(x)) + rsqrt(fabs(y) + 1);
    s += exp(x) + log(fabs(y)) + sin(z) + cos(x) + pow(fabs(x), y) + floor(x) + ceil(y) + trunc(z) + rint(x);
    s += fmin(x, y) + fmax(y, z) + fma(x, y, z) + __dadd_rz(x, y) + __dmul_ru(y, z) + __ddiv_rd(x, z) + __drcp_rn(y);
    out[i] = s;
}

extern "C" __global__ void conversions(const float *f, const double *d, const int *w, const long long *l, long long *out) {
    int i = threadIdx.x;
    long long s = 0;
    s += (int)f[i] + (unsigned)f[i] + (long long)f[i] + (unsigned long long)d[i] + (int)d[i] + (short)w[i] + (signed char)w[i];
    s += __float2int_rn(f[i]) + __float2int_ru(f[i]) + __float2uint_rd(f[i]) + __float2ll_rn(f[i]) + __double2int_rd(d[i]);
    s += __float_as_int((float)w[i]) + __float_as_int((float)l[i]) + __double_as_longlong((double)l[i]);
    s += __double_as_longlong(__int2double_rn(w[i])) + __float_as_int(__double2float_rz(d[i])) + __float_as_int((float)(unsigned)w[i]);
    s += __float_as_int(__int2float_rz(w[i])) + __float_as_int(__ll2float_rd(l[i])) + __double_as_longlong(__ll2double_ru(l[i]));
    s += (unsigned char)w[i] + (unsigned short)l[i] + __double2hiint(d[i]) + __double2loint(d[i]);
    out[i] = s;
}

typedef unsigned __int128 wide_t;

extern "C" __global__ void carries(const unsigned long long *a, unsigned long long *out) {
    int i = threadIdx.x;
    wide_t x = ((wide_t)a[i] << 64) | a[i + 1], y = ((wide_t)a[i + 2] << 64) | a[i + 3];
    wide_t sum = x + y, product = x * y, difference = x - y;
    out[i * 6 + 0] = (unsigned long long)sum;
    out[i * 6 + 1] = (unsigned long long)(sum >> 64);
    out[i * 6 + 2] = (unsigned long long)product;
    out[i * 6 + 3] = (unsigned long long)(product >> 64);
    out[i * 6 + 4] = (unsigned long long)difference;
    out[i * 6 + 5] = (unsigned long long)(difference >> 64);
}
