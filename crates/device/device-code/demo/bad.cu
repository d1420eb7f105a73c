// Kernels for the program that does everything wrong. They compute correctly; the faults are in how they are launched,
// and in what is written here on purpose.

// One element to a thread: launched with blocks that are no multiple of a warp, and in far too many tiny launches.
extern "C" __global__ void scale(float* values, float factor, unsigned offset, unsigned n) {
    const unsigned i = offset + blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        values[i] *= factor;
    }
}

// A whole array summed by whoever is there: launched as a single block, which leaves all but one SM idle. The shared
// array is much larger than the block needs, and limits how many blocks an SM can hold.
extern "C" __global__ void sum_in_one_block(const float* values, float* result, unsigned n) {
    __shared__ float partial[8192];
    float sum = 0.0f;
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x) {
        sum += values[i];
    }
    partial[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned i = 1; i < blockDim.x; ++i) {
            sum += partial[i];
        }
        *result = sum;
    }
}

// A matrix read down its columns by neighbouring threads: every lane of a warp touches its own sector.
extern "C" __global__ void transpose_reading_columns(const float* input, float* output, unsigned rows,
                                                     unsigned columns) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows * columns) {
        output[i] = input[(i % rows) * columns + i / rows];
    }
}
