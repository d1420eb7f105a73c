// Products: x has n / m rows of m, y is m by m, out is their product; of matrix and vector, x has n rows of m.
#include "suite.cuh"
#include <mma.h>

KERNEL product_naive(const float *x, const float *y, float *out, unsigned n, unsigned m) {
    for (unsigned row = blockIdx.y * blockDim.y + threadIdx.y; row < n / m; row += gridDim.y * blockDim.y)
        for (unsigned column = blockIdx.x * blockDim.x + threadIdx.x; column < m; column += gridDim.x * blockDim.x) {
            float sum = 0;
            for (unsigned k = 0; k < m; k++) sum = fmaf(x[row * m + k], y[k * m + column], sum);
            out[row * m + column] = sum;
        }
}

// Blocks of SIDE by SIDE threads, one result for each.
template <int SIDE>
__device__ __forceinline__ void product_tiled(const float *x, const float *y, float *out, unsigned n, unsigned m) {
    __shared__ float left[SIDE][SIDE + 1], right[SIDE][SIDE + 1];
    unsigned rows = n / m, across = (m + SIDE - 1) / SIDE, down = (rows + SIDE - 1) / SIDE;
    EACH_BLOCK_UNIT(b, across * down) {
        unsigned row = b / across * SIDE + threadIdx.y, column = b % across * SIDE + threadIdx.x;
        float sum = 0;
        for (unsigned first = 0; first < m; first += SIDE) {
            unsigned k = first + threadIdx.x, j = first + threadIdx.y;
            left[threadIdx.y][threadIdx.x] = row < rows && k < m ? x[row * m + k] : 0.0f;
            right[threadIdx.y][threadIdx.x] = j < m && column < m ? y[j * m + column] : 0.0f;
            __syncthreads();
#pragma unroll
            for (int i = 0; i < SIDE; i++) sum = fmaf(left[threadIdx.y][i], right[i][threadIdx.x], sum);
            __syncthreads();
        }
        if (row < rows && column < m) out[row * m + column] = sum;
    }
}

KERNEL product_tiled_8(const float *x, const float *y, float *out, unsigned n, unsigned m) {
    product_tiled<8>(x, y, out, n, m);
}
KERNEL product_tiled_16(const float *x, const float *y, float *out, unsigned n, unsigned m) {
    product_tiled<16>(x, y, out, n, m);
}
KERNEL product_tiled_32(const float *x, const float *y, float *out, unsigned n, unsigned m) {
    product_tiled<32>(x, y, out, n, m);
}

// Blocks of 16 by 16 threads, tiles of 64 by 64: 16 results for each thread.
__device__ __forceinline__ void product_blocked(const float *x, const float *y, float *out, unsigned n, unsigned m) {
    __shared__ float left[16][65], right[16][65];
    unsigned rows = n / m, across = (m + 63) / 64, down = (rows + 63) / 64, t = thread_of_block();
    EACH_BLOCK_UNIT(b, across * down) {
        unsigned top = b / across * 64, first_column = b % across * 64;
        float sums[4][4] = {};
        for (unsigned first = 0; first < m; first += 16) {
            for (unsigned i = t; i < 1024; i += 256) {
                unsigned row = top + i / 16, k = first + i % 16;
                left[i % 16][i / 16] = row < rows && k < m ? x[row * m + k] : 0.0f;
                unsigned j = first + i / 64, column = first_column + i % 64;
                right[i / 64][i % 64] = j < m && column < m ? y[j * m + column] : 0.0f;
            }
            __syncthreads();
#pragma unroll
            for (int k = 0; k < 16; k++)
#pragma unroll
                for (int r = 0; r < 4; r++)
#pragma unroll
                    for (int c = 0; c < 4; c++)
                        sums[r][c] = fmaf(left[k][threadIdx.y + 16 * r], right[k][threadIdx.x + 16 * c], sums[r][c]);
            __syncthreads();
        }
#pragma unroll
        for (int r = 0; r < 4; r++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                unsigned row = top + threadIdx.y + 16 * r, column = first_column + threadIdx.x + 16 * c;
                if (row < rows && column < m) out[row * m + column] = sums[r][c];
            }
    }
}

KERNEL product_registers(const float *x, const float *y, float *out, unsigned n, unsigned m) {
    product_blocked(x, y, out, n, m);
}
// So few registers that twice as many warps fit, and results lie in local memory.
KERNEL __maxnreg__(32) product_registers_capped(const float *x, const float *y, float *out, unsigned n, unsigned m) {
    product_blocked(x, y, out, n, m);
}

// Tensor cores: each warp makes 16 rows of 16 * TILES columns. Rows are a multiple of 16, m of 16 * TILES.
template <int TILES>
__device__ __forceinline__ void product_tensor(const __half *x, const __half *y, float *out, unsigned n, unsigned m) {
    using namespace nvcuda::wmma;
    unsigned across = m / (16 * TILES);
    EACH_WARP_UNIT(w, n / m / 16 * across) {
        unsigned top = w / across * 16, first = w % across * 16 * TILES;
        fragment<matrix_a, 16, 16, 16, __half, row_major> left;
        fragment<matrix_b, 16, 16, 16, __half, row_major> right;
        fragment<accumulator, 16, 16, 16, float> sums[TILES];
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) fill_fragment(sums[tile], 0.0f);
        for (unsigned k = 0; k < m; k += 16) {
            load_matrix_sync(left, x + top * m + k, m);
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                load_matrix_sync(right, y + k * m + first + 16 * tile, m);
                mma_sync(sums[tile], left, right, sums[tile]);
            }
        }
#pragma unroll
        for (int tile = 0; tile < TILES; tile++)
            store_matrix_sync(out + top * m + first + 16 * tile, sums[tile], m, mem_row_major);
    }
}

KERNEL tensor_1(const __half *x, const __half *y, float *out, unsigned n, unsigned m) {
    product_tensor<1>(x, y, out, n, m);
}
KERNEL tensor_4(const __half *x, const __half *y, float *out, unsigned n, unsigned m) {
    product_tensor<4>(x, y, out, n, m);
}

// Products of fragments that stay in registers: the tensor cores alone. Each warp makes one tile of 16 by 16.
KERNEL tensor_chain(const __half *x, const __half *y, float *out, unsigned n, unsigned m) {
    using namespace nvcuda::wmma;
    EACH_WARP_UNIT(w, n / 256) {
        fragment<matrix_a, 16, 16, 16, __half, row_major> left;
        fragment<matrix_b, 16, 16, 16, __half, row_major> right;
        fragment<accumulator, 16, 16, 16, float> sums;
        fill_fragment(sums, 0.0f);
        load_matrix_sync(left, x + w * 256, 16);
        load_matrix_sync(right, y + w * 256, 16);
        for (unsigned k = 0; k < m; k++) mma_sync(sums, left, right, sums);
        store_matrix_sync(out + w * 256, sums, 16, mem_row_major);
    }
}

// A thread for each row: a warp's threads read m words apart.
KERNEL matvec_thread(const float *x, const float *y, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        float sum = 0;
        for (unsigned k = 0; k < m; k++) sum = fmaf(x[(size_t)i * m + k], y[k], sum);
        out[i] = sum;
    }
}

// A warp for each row.
KERNEL matvec_warp(const float *x, const float *y, float *out, unsigned n, unsigned m) {
    EACH_WARP_UNIT(row, n) {
        float sum = 0;
        for (unsigned k = lane(); k < m; k += 32) sum = fmaf(x[(size_t)row * m + k], y[k], sum);
        sum = warp_sum(sum);
        if (lane() == 0) out[row] = sum;
    }
}
