// The kernels of `cargo bench -p ptx-exec`. The PTX beside this file was made from it with CUDA 13.0's nvcc:
//
//     nvcc -ptx -arch=compute_80 -o kernels.ptx kernels.cu

extern "C" __global__ void saxpy(float a, const float* x, float* y, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = fmaf(a, x[i], y[i]);
    }
}

// Eight chains of multiply-adds in registers: nothing but arithmetic.
extern "C" __global__ void fma_chains(const float* start, float* out, float b, float c, unsigned rounds) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float chain[8];
#pragma unroll
    for (unsigned k = 0; k < 8; ++k) {
        chain[k] = start[i] + static_cast<float>(k);
    }
    for (unsigned round = 0; round < rounds; ++round) {
#pragma unroll
        for (unsigned step = 0; step < 4; ++step) {
#pragma unroll
            for (unsigned k = 0; k < 8; ++k) {
                chain[k] = fmaf(chain[k], b, c);
            }
        }
    }
    float sum = 0.0f;
#pragma unroll
    for (unsigned k = 0; k < 8; ++k) {
        sum += chain[k];
    }
    out[i] = sum;
}

// C = A B for square matrices of a multiple of 16, through tiles in shared memory.
constexpr unsigned tile = 16;

extern "C" __global__ void __launch_bounds__(tile * tile)
matmul_tiled(const float* a, const float* b, float* c, unsigned n) {
    __shared__ float a_tile[tile][tile];
    __shared__ float b_tile[tile][tile];
    const unsigned row = blockIdx.y * tile + threadIdx.y;
    const unsigned column = blockIdx.x * tile + threadIdx.x;
    float sum = 0.0f;
    for (unsigned start = 0; start < n; start += tile) {
        a_tile[threadIdx.y][threadIdx.x] = a[row * n + start + threadIdx.x];
        b_tile[threadIdx.y][threadIdx.x] = b[(start + threadIdx.y) * n + column];
        __syncthreads();
        for (unsigned i = 0; i < tile; ++i) {
            sum = fmaf(a_tile[threadIdx.y][i], b_tile[i][threadIdx.x], sum);
        }
        __syncthreads();
    }
    c[row * n + column] = sum;
}

// Iterations until a point of the plane escapes: neighbouring threads leave the loop at different times.
extern "C" __global__ void mandelbrot(unsigned* iterations, unsigned width, unsigned height, unsigned limit,
                                      float left, float top, float pixel) {
    const unsigned column = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= width || row >= height) {
        return;
    }
    const float cx = left + static_cast<float>(column) * pixel;
    const float cy = top + static_cast<float>(row) * pixel;
    float x = 0.0f;
    float y = 0.0f;
    unsigned count = 0;
    while (count < limit && x * x + y * y <= 4.0f) {
        const float next = x * x - y * y + cx;
        y = 2.0f * x * y + cy;
        x = next;
        ++count;
    }
    iterations[row * width + column] = count;
}

// The sum of each block's part, by shuffles within warps and then among them.
extern "C" __global__ void reduce_shuffle(const float* values, float* sums, unsigned n) {
    __shared__ float of_warp[32];
    float sum = 0.0f;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        sum += values[i];
    }
    for (unsigned distance = 16; distance > 0; distance /= 2) {
        sum += __shfl_down_sync(0xffffffffu, sum, distance);
    }
    if (threadIdx.x % 32 == 0) {
        of_warp[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < blockDim.x / 32 ? of_warp[threadIdx.x] : 0.0f;
        for (unsigned distance = 16; distance > 0; distance /= 2) {
            sum += __shfl_down_sync(0xffffffffu, sum, distance);
        }
        if (threadIdx.x == 0) {
            sums[blockIdx.x] = sum;
        }
    }
}

extern "C" __global__ void empty() {
}
