// Products of matrices on tensor cores: by nvcuda::wmma, and by hand with mma, ldmatrix and cp.async.
//
// Matrices are dense; each side is a multiple of the tile's. `scripts/device-code.sh` compiles this file.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

// d = 2 a b + c, one tile of 16 by 16 for each warp. A is by rows and B by columns; fragments are scaled in registers.
template <typename In, typename Out, int M, int N, int K, typename Layout>
__device__ void product(const In *a, const In *b, const Out *c, Out *d, int n, int k) {
  wmma::fragment<wmma::matrix_a, M, N, K, In, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, M, N, K, In, Layout> right;
  wmma::fragment<wmma::accumulator, M, N, K, Out> sum, addend;
  int row = blockIdx.y * M, column = blockIdx.x * N;
  wmma::fill_fragment(sum, Out(0));
  for (int l = 0; l < k; l += K) {
    wmma::load_matrix_sync(left, a + row * k + l, k);
    if constexpr (std::is_same<Layout, wmma::col_major>::value)
      wmma::load_matrix_sync(right, b + column * k + l, k);
    else
      wmma::load_matrix_sync(right, b + l * n + column, n);
    wmma::mma_sync(sum, left, right, sum);
  }
  wmma::load_matrix_sync(addend, c + row * n + column, n, wmma::mem_row_major);
  for (int i = 0; i < sum.num_elements; i++) sum.x[i] = Out(2) * sum.x[i] + addend.x[i];
  wmma::store_matrix_sync(d + row * n + column, sum, n, wmma::mem_row_major);
}

extern "C" __global__ void wmma_half(const half *a, const half *b, const float *c, float *d, int n, int k) {
  product<half, float, 16, 16, 16, wmma::col_major>(a, b, c, d, n, k);
}

extern "C" __global__ void wmma_half_tall(const half *a, const half *b, const float *c, float *d, int n, int k) {
  product<half, float, 32, 8, 16, wmma::row_major>(a, b, c, d, n, k);
}

extern "C" __global__ void wmma_half_wide(const half *a, const half *b, const float *c, float *d, int n, int k) {
  product<half, float, 8, 32, 16, wmma::row_major>(a, b, c, d, n, k);
}

extern "C" __global__ void wmma_bfloat(const __nv_bfloat16 *a, const __nv_bfloat16 *b, const float *c, float *d,
                                       int n, int k) {
  product<__nv_bfloat16, float, 16, 16, 16, wmma::row_major>(a, b, c, d, n, k);
}

extern "C" __global__ void wmma_bytes(const signed char *a, const signed char *b, const int *c, int *d, int n,
                                      int k) {
  product<signed char, int, 16, 16, 16, wmma::col_major>(a, b, c, d, n, k);
}

extern "C" __global__ void wmma_double(const double *a, const double *b, const double *c, double *d, int n, int k) {
  product<double, double, 8, 8, 4, wmma::row_major>(a, b, c, d, n, k);
}

// d = a b in tf32, with the factors rounded in registers as the programming guide asks.
extern "C" __global__ void wmma_tf32(const float *a, const float *b, float *d, int n, int k) {
  wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> right;
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum;
  int row = blockIdx.y * 16, column = blockIdx.x * 16;
  wmma::fill_fragment(sum, 0.0f);
  for (int l = 0; l < k; l += 8) {
    wmma::load_matrix_sync(left, a + row * k + l, k);
    wmma::load_matrix_sync(right, b + l * n + column, n);
    for (int i = 0; i < left.num_elements; i++) left.x[i] = wmma::__float_to_tf32(left.x[i]);
    for (int i = 0; i < right.num_elements; i++) right.x[i] = wmma::__float_to_tf32(right.x[i]);
    wmma::mma_sync(sum, left, right, sum);
  }
  wmma::store_matrix_sync(d + row * n + column, sum, n, wmma::mem_row_major);
}

__device__ unsigned shared_address(const void *pointer) { return unsigned(__cvta_generic_to_shared(pointer)); }

__device__ void copy_16(void *to, const void *from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

// d = a b for A and B by rows, 32 by 32 for each block of four warps, with two stages of tiles in shared memory.
extern "C" __global__ void mma_half(const half *a, const half *b, float *d, int n, int k) {
  __shared__ __align__(16) half left[2][32][24], right[2][16][40];
  int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  int row = blockIdx.y * 32, column = blockIdx.x * 32;
  auto fetch = [&](int stage, int l) {
    // 64 threads take eight elements of A each, the other 64 of B.
    int at = thread % 64;
    if (thread < 64)
      copy_16(&left[stage][at / 2][at % 2 * 8], a + (row + at / 2) * k + l + at % 2 * 8);
    else
      copy_16(&right[stage][at / 4][at % 4 * 8], b + (l + at / 4) * n + column + at % 4 * 8);
    asm volatile("cp.async.commit_group;");
  };
  int my_row = warp / 2 * 16, my_column = warp % 2 * 16;
  float sum[2][4] = {};
  fetch(0, 0);
  for (int l = 0, stage = 0; l < k; l += 16, stage ^= 1) {
    if (l + 16 < k) {
      fetch(stage ^ 1, l + 16);
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    __syncthreads();
    unsigned x[4], y[4];
    unsigned from = shared_address(&left[stage][my_row + lane % 16][lane / 16 * 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(from));
    from = shared_address(&right[stage][lane % 16][my_column + lane / 16 * 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(y[0]), "=r"(y[1]), "=r"(y[2]), "=r"(y[3])
                 : "r"(from));
    for (int half_tile = 0; half_tile < 2; half_tile++)
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                   "{%0, %1, %2, %3};"
                   : "+f"(sum[half_tile][0]), "+f"(sum[half_tile][1]), "+f"(sum[half_tile][2]),
                     "+f"(sum[half_tile][3])
                   : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[2 * half_tile]), "r"(y[2 * half_tile + 1]));
    __syncthreads();
  }
  for (int half_tile = 0; half_tile < 2; half_tile++)
    for (int i = 0; i < 4; i++) {
      int to_row = row + my_row + lane / 4 + i / 2 * 8, to_column = my_column + half_tile * 8 + lane % 4 * 2 + i % 2;
      d[to_row * n + column + to_column] = sum[half_tile][i];
    }
}
