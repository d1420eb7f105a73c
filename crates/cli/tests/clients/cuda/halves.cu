// Half precision and bfloat16: conversions, arithmetic on pairs, comparisons, and matrix products on tensor cores.
#include "check.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

__global__ void fused(const __half2 *a, const __half2 *b, __half2 *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = __hfma2(a[i], b[i], __float2half2_rn(0.5f));
}

__global__ void widen(const __nv_bfloat16 *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __nv_bfloat16 x = in[i];
    out[i] = __bfloat162float(x > __float2bfloat16(0.0f) ? x * x : -x);
}

__global__ void round_trip(const float *in, float *half, float *bfloat, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    half[i] = __half2float(__float2half_rn(in[i]));
    bfloat[i] = __bfloat162float(__float2bfloat16_rn(in[i]));
}

__global__ void product(const __half *a, const __half *b, float *c, int size) {
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 16, __half, row_major> fa;
    fragment<matrix_b, 16, 16, 16, __half, col_major> fb;
    fragment<accumulator, 16, 16, 16, float> sum;
    fill_fragment(sum, 0.0f);
    for (int k = 0; k < size; k += 16) {
        load_matrix_sync(fa, a + blockIdx.y * 16 * size + k, size);
        load_matrix_sync(fb, b + blockIdx.x * 16 * size + k, size);
        mma_sync(sum, fa, fb, sum);
    }
    store_matrix_sync(c + blockIdx.y * 16 * size + blockIdx.x * 16, sum, size, mem_row_major);
}

int main() {
    Random random{11};
    const int n = 1000;
    std::vector<__half2> a(n), b(n);
    std::vector<float> low(n), high(n);
    for (int i = 0; i < n; i++) {
        a[i] = __floats2half2_rn(random.unit(), -random.unit());
        b[i] = __floats2half2_rn(random.unit(), random.unit());
        low[i] = __half2float(__float2half_rn(
            std::fma(__low2float(a[i]), __low2float(b[i]), 0.5f)));
        high[i] = __half2float(__float2half_rn(
            std::fma(__high2float(a[i]), __high2float(b[i]), 0.5f)));
    }
    Device<__half2> device_a(a), device_b(b), pairs(n);
    LAUNCH(fused<<<8, 128>>>(device_a.data, device_b.data, pairs.data, n));
    std::vector<__half2> found = pairs.host();
    for (int i = 0; i < n; i++) EXPECT(__low2float(found[i]) == low[i] && __high2float(found[i]) == high[i]);

    std::vector<__nv_bfloat16> bfloats(n);
    std::vector<float> right(n);
    for (int i = 0; i < n; i++) {
        bfloats[i] = __float2bfloat16(random.unit() - 0.5f);
        float x = __bfloat162float(bfloats[i]);
        right[i] = x > 0 ? __bfloat162float(__float2bfloat16(x * x)) : -x;
    }
    Device<__nv_bfloat16> device_bfloats(bfloats);
    Device<float> out(n), other(n);
    LAUNCH(widen<<<8, 128>>>(device_bfloats.data, out.data, n));
    expect_equal("widened", out.host(), right);

    std::vector<float> values(n), as_half(n), as_bfloat(n);
    for (int i = 0; i < n; i++) {
        values[i] = std::ldexp(random.unit() - 0.5f, int(random.below(40)) - 24);
        as_half[i] = __half2float(__float2half_rn(values[i]));
        as_bfloat[i] = __bfloat162float(__float2bfloat16_rn(values[i]));
    }
    Device<float> device_values(values);
    LAUNCH(round_trip<<<8, 128>>>(device_values.data, out.data, other.data, n));
    expect_equal("half", out.host(), as_half);
    expect_equal("bfloat", other.host(), as_bfloat);

    const int size = 64;
    std::vector<__half> ma(size * size), mb(size * size);
    for (auto &value : ma) value = __float2half(float(int(random.below(17)) - 8));
    for (auto &value : mb) value = __float2half(float(int(random.below(17)) - 8));
    std::vector<float> mc(size * size);
    for (int row = 0; row < size; row++)
        for (int column = 0; column < size; column++)
            for (int k = 0; k < size; k++)
                mc[row * size + column] += __half2float(ma[row * size + k]) * __half2float(mb[column * size + k]);
    Device<__half> device_ma(ma), device_mb(mb);
    Device<float> device_mc(size * size);
    LAUNCH(product<<<dim3(4, 4), 32>>>(device_ma.data, device_mb.data, device_mc.data, size));
    expect_equal("product", device_mc.host(), mc);
    return done();
}
