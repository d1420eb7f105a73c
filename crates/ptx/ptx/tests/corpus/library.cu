// The math library in single precision, one function at a time.

extern "C" __global__ void unary(const float *in, float *out, int n, int which) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = in[i], a = fabsf(x), y = 0;
    switch (which) {
    case 0: y = sinf(x); break;
    case 1: y = cosf(x); break;
    case 2: y = tanf(x); break;
    case 3: y = asinf(x / 8); break;
    case 4: y = acosf(x / 8); break;
    case 5: y = atanf(x); break;
    case 6: y = sinhf(x); break;
    case 7: y = coshf(x); break;
    case 8: y = tanhf(x); break;
    case 9: y = expf(x); break;
    case 10: y = exp2f(x); break;
    case 11: y = expm1f(x); break;
    case 12: y = logf(a); break;
    case 13: y = log2f(a); break;
    case 14: y = log10f(a); break;
    case 15: y = log1pf(a); break;
    case 16: y = cbrtf(x); break;
    case 17: y = sqrtf(a); break;
    case 18: y = sinf(x * 1e6f); break;
    case 19: y = powf(a, 1.7f); break;
    }
    out[i] = y;
}
