// Two stages of a made-up signal chain. They are separate kernels so that a stream has an order to keep.

// A three-point moving average over a chunk; its ends repeat.
extern "C" __global__ void smooth(const float* input, float* output, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const float left = input[i == 0 ? 0 : i - 1];
        const float right = input[i + 1 == n ? i : i + 1];
        output[i] = (left + input[i] + right) / 3.0f;
    }
}

// A soft limit: x / (1 + |x|), scaled.
extern "C" __global__ void limit(float* values, float scale, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        values[i] = scale * values[i] / (1.0f + fabsf(values[i]));
    }
}
