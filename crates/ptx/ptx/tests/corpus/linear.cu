// Tensor cores and asynchronous copies.
#if __CUDA_ARCH__ >= 700
#include <mma.h>
using namespace nvcuda;

extern "C" __global__ void wmma_half(const __half *a, const __half *b, float *c) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.0f);
    for (int k = 0; k < 64; k += 16) {
        wmma::load_matrix_sync(fa, a + k, 64);
        wmma::load_matrix_sync(fb, b + k, 64);
        wmma::mma_sync(fc, fa, fb, fc);
    }
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}
#endif

extern "C" __global__ void tiled(const float *a, const float *b, float *c, int n) {
    __shared__ float ta[16][16], tb[16][16];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
    float sum = 0;
    for (int k = 0; k < n; k += 16) {
        ta[y][x] = a[row * n + k + x];
        tb[y][x] = b[(k + y) * n + column];
        __syncthreads();
        for (int i = 0; i < 16; i++) sum += ta[y][i] * tb[i][x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

#if __CUDA_ARCH__ >= 750
extern "C" __global__ void matrices(const unsigned *a, const unsigned *b, float *c, int *d) {
    __shared__ unsigned tile[256];
    int i = threadIdx.x;
    for (int k = i; k < 256; k += 32) tile[k] = a[k];
    __syncwarp();
    unsigned x0, x1, x2, x3, address = __cvta_generic_to_shared(tile + (i & 15) * 4);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x0), "=r"(x1), "=r"(x2), "=r"(x3) : "r"(address));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(x2), "=r"(x3) : "r"(address));
    float f0 = 0, f1 = 0, f2 = 0, f3 = 0;
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(f0), "+f"(f1), "+f"(f2), "+f"(f3) : "r"(x0), "r"(x1), "r"(b[i]));
    int s0 = 0, s1 = 0;
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+r"(s0), "+r"(s1) : "r"(x2), "r"(x3));
    c[i * 4] = f0 + f1 + f2 + f3;
    d[i] = s0 + s1;
}
#endif

#if __CUDA_ARCH__ >= 800
#include <cuda_pipeline.h>
extern "C" __global__ void pipelined(const float4 *in, float4 *out, int n) {
    __shared__ float4 stage[2][64];
    int i = threadIdx.x;
    __pipeline_memcpy_async(&stage[0][i], in + i, 16);
    __pipeline_commit();
    for (int k = 0; k < n; k++) {
        if (k + 1 < n) __pipeline_memcpy_async(&stage[(k + 1) & 1][i], in + (k + 1) * 64 + i, 16);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        out[k * 64 + i] = stage[k & 1][63 - i];
        __syncthreads();
    }
}

extern "C" __global__ void brain_mma(const unsigned *a, const unsigned *b, float *c) {
    int i = threadIdx.x;
    float f0 = 0, f1 = 0, f2 = 0, f3 = 0;
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(f0), "+f"(f1), "+f"(f2), "+f"(f3)
                 : "r"(a[i]), "r"(a[i + 32]), "r"(a[i + 64]), "r"(a[i + 96]), "r"(b[i]), "r"(b[i + 32]));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(f0), "+f"(f1), "+f"(f2), "+f"(f3)
                 : "r"(a[i]), "r"(a[i + 32]), "r"(a[i + 64]), "r"(a[i + 96]), "r"(b[i]), "r"(b[i + 32]));
    double d0 = 0, d1 = 0;
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+d"(d0), "+d"(d1) : "d"((double)f0), "d"((double)f1));
    c[i] = f0 + f1 + f2 + f3 + (float)d0 + (float)d1;
}
#endif

#if __CUDA_ARCH__ >= 900
#include <cuda/barrier>
#include <cooperative_groups.h>
extern "C" __global__ void __cluster_dims__(2, 1, 1) clusters(int *out) {
    __shared__ int value;
    auto cluster = cooperative_groups::this_cluster();
    if (threadIdx.x == 0) value = cluster.block_rank() + 1;
    cluster.sync();
    out[blockIdx.x * blockDim.x + threadIdx.x] = *cluster.map_shared_rank(&value, 1 - cluster.block_rank());
    cluster.sync();
}

extern "C" __global__ void memory_barriers(const int *in, int *out) {
    __shared__ alignas(16) int tile[256];
    __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
    if (threadIdx.x == 0) init(&barrier, blockDim.x);
    __syncthreads();
    cuda::barrier<cuda::thread_scope_block>::arrival_token token;
    if (threadIdx.x == 0) {
        cuda::memcpy_async(tile, in, cuda::aligned_size_t<16>(sizeof(tile)), barrier);
    }
    token = barrier.arrive();
    barrier.wait(std::move(token));
    out[threadIdx.x] = tile[255 - threadIdx.x];
}
#endif
