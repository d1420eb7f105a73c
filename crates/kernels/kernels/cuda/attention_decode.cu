// Attention for a few queries against many keys, as in decoding, on any GPU from sm_80 on.
//
// Each key and value is used by few queries, so the time is that of reading the cache once. Three things keep memory busy:
//
// - The cache is split: the keys of a head are cut into chunks, a block takes one, so that few heads still fill the GPU.
//   A block writes a partial result (O relative to its own maximum, the maximum, the sum), and a second kernel merges them.
// - All queries that share a head of keys (a group of heads, a few rows) are packed into one tile of 8 rows, so that the
//   cache is read once for all of them, and products run on tensor cores (mma.sync): the ordinary units could not keep up
//   with 8 rows.
// - Each warp copies (cp.async) into a ring of its own in shared memory, whole rows in the order of memory: the copies in
//   flight need no registers, and no barrier between warps. Pieces of 64 bytes, which the products would like better, cost
//   a quarter of the bandwidth.
//
// A warp takes tiles of 16 keys. The contraction of a product may run in any order if both sides agree, so a lane loads 16
// contiguous bytes of shared memory wherever the instruction wants elements of one row. With lane = 4 g + t:
//
//     S = Q K^T   A: row g of Q, elements 32 e + 8 t ...   B: key g, the same elements       S: row g, keys 2t, 2t + 1
//     O^T = V^T P^T   A: elements 64 c + 8 g ... of keys 2t, 2t + 1, 2t + 8, 2t + 9, B: S rounded, without a move
//                                                                                           O: rows 2t, 2t + 1
#include "attention.cuh"

namespace attention {

constexpr int DECODE_ROWS = 8, DECODE_KEYS = 16;
#ifndef DECODE_WARPS
#define DECODE_WARPS 4
#endif

// Tiles of keys in flight in a warp. The ring of a block takes DECODE_WARPS * stages * 64 D bytes.
#ifndef DECODE_STAGES
#define DECODE_STAGES 2
#endif
template <int D>
constexpr int STAGES_OF = DECODE_STAGES * 128 / D;

__device__ __forceinline__ void copy_async(void* to, const void* from) {
  uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// c += A B for A of 16 x 16 and B of 16 x 8.
template <typename T>
__device__ __forceinline__ void multiply(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                         uint32_t b1) {
#define MULTIPLY(TYPE)                                                                                                  \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE                                                   \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                   \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                         \
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
  if constexpr (std::is_same<T, __nv_bfloat16>::value) MULTIPLY("bf16");
  else MULTIPLY("f16");
#undef MULTIPLY
}

// Weights relative to a maximum that may be minus infinity, when nothing was seen.
__device__ __forceinline__ float weight(const Problem& p, float score, float top) {
  return exp2f((score - (top == -INFINITY ? 0.0f : top)) * p.scale_log2);
}

// The work is numbered: chunks of a unit, a unit being a tile of rows of a head of keys of a batch.
__device__ __forceinline__ int rows_of_head(const Problem& p) { return p.heads / p.key_heads * p.queries; }
__device__ __forceinline__ int tiles_of_head(const Problem& p) { return (rows_of_head(p) + DECODE_ROWS - 1) / DECODE_ROWS; }

// Writes for each chunk of each unit 8 rows of `partial_output`, and their maxima and sums to `partial_sums`.
template <typename T, int D>
__device__ void decode(const T* q, const T* k, const T* v, float* partial_output, float2* partial_sums, const Problem& p,
                       int mask, int chunks) {
  constexpr int STAGES = STAGES_OF<D>, LANES = DECODE_WARPS * 32, VECTORS = D / 16;
  extern __shared__ uint4 shared[];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  uint4* ring = shared + warp * STAGES * 2 * DECODE_KEYS * (D / 8);
  int tiles = tiles_of_head(p), rows = rows_of_head(p);
  long long total = static_cast<long long>(tiles) * p.key_heads * p.batch * chunks;
  for (long long work = blockIdx.x; work < total; work += gridDim.x) {
    int chunk = work % chunks;
    long long unit = work / chunks;
    int head = unit / tiles;  // of keys, of all batches
    int row = unit % tiles * DECODE_ROWS + g;
    const T* keys = k + head / p.key_heads * p.key_batch + head % p.key_heads * p.key_head;
    const T* values = v + head / p.key_heads * p.key_batch + head % p.key_heads * p.key_head;

    // What some row of the tile may see, and what this lane's row does: nothing, if there is no such row.
    int first, last, begin = 0, end = 0, unused;
    seen_by_mask(p, mask, 0, first, unused);
    seen_by_mask(p, mask, p.queries - 1, unused, last);
    uint4 query[D / 32] = {};
    if (row < rows) {
      seen_by_mask(p, mask, row % p.queries, begin, end);
      int query_head = head / p.key_heads * p.heads + head % p.key_heads * (p.heads / p.key_heads) + row / p.queries;
      const T* from = row_of_queries(q, p, query_head, row % p.queries);
#pragma unroll
      for (int e = 0; e < D / 32; ++e) query[e] = *reinterpret_cast<const uint4*>(from + 32 * e + 8 * t);
    }
    int blocks = (max(last - first, 0) + DECODE_KEYS - 1) / DECODE_KEYS;
    int from = static_cast<long long>(blocks) * chunk / chunks, to = static_cast<long long>(blocks) * (chunk + 1) / chunks;

    // Vector `i` of row `key` of a tile of keys (`which` 0) or values (1), in the warp's ring. Rows are swizzled so that the
    // 8 lanes that read at a time find 8 different banks, in both products.
    auto slot = [&](int stage, int which, int key, int i) {
      int swizzled = i ^ (key / 2 % 4 * 2) ^ (key % 2 * 4);
      return ring + ((stage * 2 + which) * DECODE_KEYS + key) * (D / 8) + swizzled;
    };
    auto load = [&](const T* rows, int which, int block, int stage) {
      if (block < to) {
#pragma unroll
        for (int i = 0; i < VECTORS; ++i) {
          int key = (i * 32 + lane) / (D / 8), vector = (i * 32 + lane) % (D / 8);
          const T* source = rows + min(first + block * DECODE_KEYS + key, last - 1) * p.key_row + 8 * vector;
          copy_async(slot(stage, which, key, vector), source);
        }
      }
      commit_copies();
    };

    float top = -INFINITY, sum = 0.0f;  // of row g; the sum is of this lane's keys
    float o[D / 64][4][4] = {};
#pragma unroll
    for (int s = 0; s < STAGES; ++s) {
      load(keys, 0, from + warp + s * DECODE_WARPS, s);
      load(values, 1, from + warp + s * DECODE_WARPS, s);
    }
    int stage = 0;
    for (int block = from + warp; block < to; block += DECODE_WARPS) {
      wait_copies<2 * STAGES - 1>();
      __syncwarp();
      float s[2][4] = {};
#pragma unroll
      for (int e = 0; e < D / 32; ++e) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          uint4 key = *slot(stage, 0, 8 * h + g, 4 * e + t);
          multiply<T>(s[h], query[e].x, 0, query[e].y, 0, key.x, key.y);
          multiply<T>(s[h], query[e].z, 0, query[e].w, 0, key.z, key.w);
        }
      }
      __syncwarp();  // all lanes have read
      load(keys, 0, block + STAGES * DECODE_WARPS, stage);

      float highest = top;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          int key = first + block * DECODE_KEYS + 8 * h + 2 * t + i;
          if (key < begin || key >= end) s[h][i] = -INFINITY;
          highest = fmaxf(highest, s[h][i]);
        }
      }
      highest = fmaxf(highest, __shfl_xor_sync(0xffffffff, highest, 1));
      highest = fmaxf(highest, __shfl_xor_sync(0xffffffff, highest, 2));
      if (__any_sync(0xffffffff, highest > top)) {
        float rescale = weight(p, top, highest);
        sum *= rescale;
        float even = __shfl_sync(0xffffffff, rescale, 8 * t), odd = __shfl_sync(0xffffffff, rescale, 8 * t + 4);
#pragma unroll
        for (int c = 0; c < D / 64; ++c) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            o[c][j][0] *= even, o[c][j][1] *= odd;
            o[c][j][2] *= even, o[c][j][3] *= odd;
          }
        }
        top = highest;
      }
      uint32_t weights[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float low = weight(p, s[h][0], top), high = weight(p, s[h][1], top);
        sum += low + high;
        weights[h] = pack<T>(low, high);
      }

      wait_copies<2 * STAGES - 1>();
      __syncwarp();
#pragma unroll
      for (int c = 0; c < D / 64; ++c) {
        uint4 value[4];
#pragma unroll
        for (int h = 0; h < 4; ++h) value[h] = *slot(stage, 1, 2 * t + h % 2 + h / 2 * 8, 8 * c + g);
        auto product = [&](float(&sums)[4], uint32_t k0, uint32_t k1, uint32_t k8, uint32_t k9) {
          multiply<T>(sums, __byte_perm(k0, k1, 0x5410), __byte_perm(k0, k1, 0x7632), __byte_perm(k8, k9, 0x5410),
                      __byte_perm(k8, k9, 0x7632), weights[0], weights[1]);
        };
        product(o[c][0], value[0].x, value[1].x, value[2].x, value[3].x);
        product(o[c][1], value[0].y, value[1].y, value[2].y, value[3].y);
        product(o[c][2], value[0].z, value[1].z, value[2].z, value[3].z);
        product(o[c][3], value[0].w, value[1].w, value[2].w, value[3].w);
      }
      __syncwarp();
      load(values, 1, block + STAGES * DECODE_WARPS, stage);
      stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
    wait_copies<0>();
    sum += __shfl_xor_sync(0xffffffff, sum, 1);
    sum += __shfl_xor_sync(0xffffffff, sum, 2);

    // The warps' results meet in shared memory, where the ring was.
    __shared__ float2 sums[DECODE_WARPS][DECODE_ROWS];
    float* outputs = reinterpret_cast<float*>(shared);  // [warp][row][D]
    __syncthreads();
    if (t == 0) sums[warp][g] = {top, sum};
#pragma unroll
    for (int c = 0; c < D / 64; ++c) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float* at = outputs + (warp * DECODE_ROWS + 2 * t) * D + 64 * c + 8 * g + 2 * j;
        *reinterpret_cast<float2*>(at) = {o[c][j][0], o[c][j][2]};
        *reinterpret_cast<float2*>(at + D) = {o[c][j][1], o[c][j][3]};
      }
    }
    __syncthreads();
    int rows_here = min(rows - static_cast<int>(unit % tiles) * DECODE_ROWS, DECODE_ROWS);
    for (int i = threadIdx.x; i < rows_here * D; i += LANES) {
      float2 all = {-INFINITY, 0.0f};
      for (int w = 0; w < DECODE_WARPS; ++w) all.x = fmaxf(all.x, sums[w][i / D].x);
      float element = 0.0f;
      for (int w = 0; w < DECODE_WARPS; ++w) {
        float share = weight(p, sums[w][i / D].x, all.x);
        all.y = fmaf(share, sums[w][i / D].y, all.y);
        element = fmaf(share, outputs[w * DECODE_ROWS * D + i], element);
      }
      partial_output[work * DECODE_ROWS * D + i] = element;
      if (i % D == 0) partial_sums[work * DECODE_ROWS + i / D] = all;
    }
    __syncthreads();
  }
}

// A block for each row of O merges what the chunks have written. A thread adds up 4 elements over some of the chunks.
template <typename T, int D>
__device__ void merge(const float* partial_output, const float2* partial_sums, T* output, float* log_sum_exps,
                      const Problem& p, int chunks) {
  constexpr int THREADS = 128, PARTS = THREADS / (D / 4);
  __shared__ float4 parts[THREADS];
  int lane = threadIdx.x % 32, column = threadIdx.x % (D / 4), part = threadIdx.x / (D / 4), group = p.heads / p.key_heads;
  long long total = static_cast<long long>(p.heads) * p.batch * p.queries;
  for (long long at = blockIdx.x; at < total; at += gridDim.x) {
    int head = at / p.queries, query = at % p.queries;  // a head of queries, of all batches
    int row = head % group * p.queries + query;
    long long unit = static_cast<long long>(head / group) * tiles_of_head(p) + row / DECODE_ROWS;
    long long first = unit * chunks * DECODE_ROWS + row % DECODE_ROWS;  // chunk c has row first + 8 c
    float top = -INFINITY, sum = 0.0f;
    for (int c = lane; c < chunks; c += 32) top = fmaxf(top, partial_sums[first + c * DECODE_ROWS].x);
    for (int d = 16; d > 0; d /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, d));
    for (int c = lane; c < chunks; c += 32) {
      float2 its = partial_sums[first + c * DECODE_ROWS];
      sum = fmaf(weight(p, its.x, top), its.y, sum);
    }
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
    float4 all = {};
#pragma unroll 4
    for (int c = part; c < chunks; c += PARTS) {
      float share = weight(p, partial_sums[first + c * DECODE_ROWS].x, top);
      float4 x = *reinterpret_cast<const float4*>(partial_output + (first + c * DECODE_ROWS) * D + 4 * column);
      all = {fmaf(share, x.x, all.x), fmaf(share, x.y, all.y), fmaf(share, x.z, all.z), fmaf(share, x.w, all.w)};
    }
    parts[threadIdx.x] = all;
    __syncthreads();
    if (part == 0) {
      for (int i = 1; i < PARTS; ++i) {
        float4 x = parts[i * (D / 4) + column];
        all = {all.x + x.x, all.y + x.y, all.z + x.z, all.w + x.w};
      }
      float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
      uint2 rounded = {pack<T>(all.x * inverse, all.y * inverse), pack<T>(all.z * inverse, all.w * inverse)};
      T* to = const_cast<T*>(row_of_queries(output, p, head, query));
      *reinterpret_cast<uint2*>(to + 4 * column) = rounded;
      if (column == 0) log_sum_exps[at] = log_sum_exp(p, top, sum);
    }
    __syncthreads();
  }
}

}  // namespace attention

using attention::Problem;

#define DECODE(TYPE, NAME, D)                                                                                           \
  extern "C" __global__ void __launch_bounds__(32 * DECODE_WARPS)                                                       \
      attention_decode_##NAME##_d##D(const TYPE* q, const TYPE* k, const TYPE* v, float* partial_output,                \
                                     float2* partial_sums, const Problem p, int mask, int chunks) {                     \
    attention::decode<TYPE, D>(q, k, v, partial_output, partial_sums, p, mask, chunks);                                 \
  }                                                                                                                     \
  extern "C" __global__ void __launch_bounds__(128)                                                                     \
      attention_merge_##NAME##_d##D(const float* partial_output, const float2* partial_sums, TYPE* output,              \
                                    float* log_sum_exps, const Problem p, int chunks) {                                 \
    attention::merge<TYPE, D>(partial_output, partial_sums, output, log_sum_exps, p, chunks);                           \
  }
#define DECODE_DIMS(TYPE, NAME) DECODE(TYPE, NAME, 64) DECODE(TYPE, NAME, 128) DECODE(TYPE, NAME, 256)
DECODE_DIMS(__nv_bfloat16, bf16)
DECODE_DIMS(__half, f16)
