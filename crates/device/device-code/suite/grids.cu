// Values on a line, a plane of width m, a volume of m by m by n / m^2, and what neighbours make of them.
#include "suite.cuh"

// Cells of a plane, threads along x and y as the launch has them.
#define EACH_CELL(column, row, width, height)                                                          \
    for (unsigned row = blockIdx.y * blockDim.y + threadIdx.y; row < (height); row += gridDim.y * blockDim.y) \
        for (unsigned column = blockIdx.x * blockDim.x + threadIdx.x; column < (width);                \
             column += gridDim.x * blockDim.x)

KERNEL stencil_line(const float *x, const float *, float *out, unsigned n, unsigned m) {
    EACH_UNIT(i) {
        float sum = 0;
        for (int k = -(int)m; k <= (int)m; k++) sum += x[min(max((int)i + k, 0), (int)n - 1)];
        out[i] = sum;
    }
}

// Through shared memory: a tile and m words on either side.
KERNEL stencil_line_shared(const float *x, const float *, float *out, unsigned n, unsigned m) {
    float *tile = dynamic_shared<float>();
    unsigned t = thread_of_block(), threads = threads_of_block();
    EACH_BLOCK_UNIT(b, (n + threads - 1) / threads) {
        int first = (int)(b * threads) - (int)m;
        for (unsigned k = t; k < threads + 2 * m; k += threads) tile[k] = x[min(max(first + (int)k, 0), (int)n - 1)];
        __syncthreads();
        float sum = 0;
        for (unsigned k = 0; k <= 2 * m; k++) sum += tile[t + k];
        if (b * threads + t < n) out[b * threads + t] = sum;
        __syncthreads();
    }
}

KERNEL stencil_plane_5(const float *x, const float *, float *out, unsigned n, unsigned m) {
    unsigned height = n / m;
    EACH_CELL(column, row, m, height) {
        unsigned left = max(column, 1u) - 1, right = min(column + 1, m - 1);
        unsigned up = max(row, 1u) - 1, down = min(row + 1, height - 1);
        out[row * m + column] = 0.5f * x[row * m + column] + 0.125f * (x[row * m + left] + x[row * m + right] +
                                                                     x[up * m + column] + x[down * m + column]);
    }
}

template <int RADIUS> __device__ __forceinline__ void box(const float *x, float *out, unsigned n, unsigned m) {
    int width = (int)m, height = (int)(n / m);
    EACH_CELL(column, row, m, n / m) {
        float sum = 0;
#pragma unroll
        for (int down = -RADIUS; down <= RADIUS; down++)
#pragma unroll
            for (int right = -RADIUS; right <= RADIUS; right++)
                sum += x[min(max((int)row + down, 0), height - 1) * width + min(max((int)column + right, 0), width - 1)];
        out[row * m + column] = sum;
    }
}

KERNEL stencil_plane_box3(const float *x, const float *, float *out, unsigned n, unsigned m) { box<1>(x, out, n, m); }
KERNEL stencil_plane_box7(const float *x, const float *, float *out, unsigned n, unsigned m) { box<3>(x, out, n, m); }

KERNEL stencil_volume_7(const float *x, const float *, float *out, unsigned n, unsigned m) {
    unsigned depth = n / (m * m), plane = m * m;
    for (unsigned z = blockIdx.z * blockDim.z + threadIdx.z; z < depth; z += gridDim.z * blockDim.z)
        EACH_CELL(column, row, m, m) {
            unsigned i = z * plane + row * m + column;
            float sum = x[column > 0 ? i - 1 : i] + x[column + 1 < m ? i + 1 : i] + x[row > 0 ? i - m : i] +
                        x[row + 1 < m ? i + m : i] + x[z > 0 ? i - plane : i] + x[z + 1 < depth ? i + plane : i];
            out[i] = 0.25f * x[i] + 0.125f * sum;
        }
}

// A filter of y's first words, SIDE by SIDE of them.
template <int SIDE>
__device__ __forceinline__ void convolve(const float *x, const float *y, float *out, unsigned n, unsigned m) {
    int width = (int)m, height = (int)(n / m);
    EACH_CELL(column, row, m, n / m) {
        float sum = 0;
#pragma unroll
        for (int down = 0; down < SIDE; down++)
#pragma unroll
            for (int right = 0; right < SIDE; right++) {
                int r = (int)row + down - SIDE / 2, c = (int)column + right - SIDE / 2;
                if (r >= 0 && r < height && c >= 0 && c < width) sum = fmaf(x[r * width + c], y[down * SIDE + right], sum);
            }
        out[row * m + column] = sum;
    }
}

KERNEL convolution_3(const float *x, const float *y, float *out, unsigned n, unsigned m) { convolve<3>(x, y, out, n, m); }
KERNEL convolution_7(const float *x, const float *y, float *out, unsigned n, unsigned m) { convolve<7>(x, y, out, n, m); }

// Blocks of 16 by 16 threads: the tile and its border in shared memory.
KERNEL convolution_5_tiled(const float *x, const float *y, float *out, unsigned n, unsigned m) {
    __shared__ float tile[20][21];
    int width = (int)m, height = (int)(n / m);
    unsigned across = (m + 15) / 16, down = (n / m + 15) / 16;
    EACH_BLOCK_UNIT(b, across * down) {
        int left = (int)(b % across) * 16 - 2, top = (int)(b / across) * 16 - 2;
        for (unsigned k = thread_of_block(); k < 400; k += 256) {
            int r = top + (int)k / 20, c = left + (int)k % 20;
            tile[k / 20][k % 20] = r >= 0 && r < height && c >= 0 && c < width ? x[r * width + c] : 0.0f;
        }
        __syncthreads();
        float sum = 0;
#pragma unroll
        for (int r = 0; r < 5; r++)
#pragma unroll
            for (int c = 0; c < 5; c++) sum = fmaf(tile[threadIdx.y + r][threadIdx.x + c], y[r * 5 + c], sum);
        int row = top + 2 + (int)threadIdx.y, column = left + 2 + (int)threadIdx.x;
        if (row < height && column < width) out[row * width + column] = sum;
        __syncthreads();
    }
}

// The plane is m wide; out is its transpose, n / m wide.
KERNEL transpose_naive(const float *x, const float *, float *out, unsigned n, unsigned m) {
    unsigned height = n / m;
    EACH_CELL(column, row, m, height) out[column * height + row] = x[row * m + column];
}

// Blocks of 32 by 8 threads move tiles of 32 by 32. Without padding all lanes of a column meet in one bank.
template <int PADDING> __device__ __forceinline__ void transpose(const float *x, float *out, unsigned n, unsigned m) {
    __shared__ float tile[32][32 + PADDING];
    unsigned height = n / m, across = (m + 31) / 32, down = (height + 31) / 32;
    EACH_BLOCK_UNIT(b, across * down) {
        unsigned left = b % across * 32, top = b / across * 32;
        for (unsigned r = threadIdx.y; r < 32; r += 8)
            if (top + r < height && left + threadIdx.x < m) tile[r][threadIdx.x] = x[(top + r) * m + left + threadIdx.x];
        __syncthreads();
        for (unsigned r = threadIdx.y; r < 32; r += 8)
            if (left + r < m && top + threadIdx.x < height)
                out[(left + r) * height + top + threadIdx.x] = tile[threadIdx.x][r];
        __syncthreads();
    }
}

KERNEL transpose_conflicts(const float *x, const float *, float *out, unsigned n, unsigned m) {
    transpose<0>(x, out, n, m);
}
KERNEL transpose_padded(const float *x, const float *, float *out, unsigned n, unsigned m) {
    transpose<1>(x, out, n, m);
}
