// Counts of the 256 byte values. Each block counts in shared memory and adds its counts to the result once, so that
// blocks seldom contend for one address.
extern "C" __global__ void histogram(const unsigned char* values, unsigned* counts, unsigned n) {
    __shared__ unsigned block_counts[256];
    for (unsigned bin = threadIdx.x; bin < 256; bin += blockDim.x) {
        block_counts[bin] = 0;
    }
    __syncthreads();

    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&block_counts[values[i]], 1u);
    }
    __syncthreads();

    for (unsigned bin = threadIdx.x; bin < 256; bin += blockDim.x) {
        if (block_counts[bin] != 0) {
            atomicAdd(&counts[bin], block_counts[bin]);
        }
    }
}
