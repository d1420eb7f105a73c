// Separate compilation (`nvcc -rdc=true`), with `separate_part.cu`: functions, variables and a kernel of one translation
// unit that the other uses, and names that both have for themselves.
#include "check.h"

extern __device__ int adjustments;
extern __constant__ float weights[4];
extern __device__ float (*choice)(float);
__device__ float shape(float x);
extern __global__ void elsewhere(const float *in, float *out, int n);

// The other unit has another of this name.
static __device__ __noinline__ float own(float x) { return x + 1; }

__global__ void here(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = shape(own(in[i])) * weights[i % 4] + choice(in[i]);
    if (i % 100 == 0) atomicAdd(&adjustments, 1);
}

int main() {
    Random random{10};
    const int n = 1000;
    std::vector<float> in = random.floats(n), right(n);
    const float factors[4] = {1, 0.5f, 0.25f, 2};
    Device<float> device_in(in), out(n);
    LAUNCH(here<<<8, 128>>>(device_in.data, out.data, n));
    for (int i = 0; i < n; i++) right[i] = (in[i] + 1) * (in[i] + 1) * factors[i % 4] + in[i] * 10;
    expect_equal("here", out.host(), right, 1e-6);
    LAUNCH(elsewhere<<<8, 128>>>(device_in.data, out.data, n));
    for (int i = 0; i < n; i++) right[i] = in[i] - 1 + factors[i % 4];
    expect_equal("elsewhere", out.host(), right, 1e-6);
    int count;
    CUDA(cudaMemcpyFromSymbol(&count, adjustments, sizeof count));
    EXPECT(count == 5 + 10);
    return done();
}
