// y = alpha * x + y with a grid-stride loop: the grid is sized to the device, not to the data.
extern "C" __global__ void saxpy(float alpha, const float* x, float* y, unsigned n) {
    const unsigned stride = gridDim.x * blockDim.x;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        y[i] = fmaf(alpha, x[i], y[i]);
    }
}
