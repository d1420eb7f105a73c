// The sum of n floats in two launches of one kernel: each block leaves one partial sum, the last launch adds those.
// Inside a block: a grid-stride loop per thread, shuffles within each warp, shared memory between warps.
extern "C" __global__ void reduce(const float* input, float* partial, unsigned n) {
    __shared__ float warp_sums[32];
    const unsigned lane = threadIdx.x % 32;
    const unsigned warp = threadIdx.x / 32;

    float sum = 0.0f;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        sum += input[i];
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_down_sync(0xffffffffu, sum, offset);
    }
    if (lane == 0) {
        warp_sums[warp] = sum;
    }
    __syncthreads();

    if (warp == 0) {
        sum = lane < blockDim.x / 32 ? warp_sums[lane] : 0.0f;
        for (int offset = 16; offset > 0; offset /= 2) {
            sum += __shfl_down_sync(0xffffffffu, sum, offset);
        }
        if (lane == 0) {
            partial[blockIdx.x] = sum;
        }
    }
}
