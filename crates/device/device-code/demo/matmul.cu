// C = A B, row major, through square tiles in shared memory: every element of A and B is read from global memory once
// per tile instead of once per product. A is m x k, B is k x n; edges that do not fill a tile are padded with zeros.
constexpr unsigned tile = 16;

extern "C" __global__ void __launch_bounds__(tile * tile)
matmul(const float* a, const float* b, float* c, unsigned m, unsigned n, unsigned k) {
    __shared__ float a_tile[tile][tile];
    __shared__ float b_tile[tile][tile];
    const unsigned row = blockIdx.y * tile + threadIdx.y;
    const unsigned column = blockIdx.x * tile + threadIdx.x;

    float sum = 0.0f;
    for (unsigned start = 0; start < k; start += tile) {
        const unsigned a_column = start + threadIdx.x;
        const unsigned b_row = start + threadIdx.y;
        a_tile[threadIdx.y][threadIdx.x] = row < m && a_column < k ? a[row * k + a_column] : 0.0f;
        b_tile[threadIdx.y][threadIdx.x] = b_row < k && column < n ? b[b_row * n + column] : 0.0f;
        __syncthreads();
        for (unsigned i = 0; i < tile; ++i) {
            sum = fmaf(a_tile[threadIdx.y][i], b_tile[i][threadIdx.x], sum);
        }
        __syncthreads();
    }
    if (row < m && column < n) {
        c[row * n + column] = sum;
    }
}
