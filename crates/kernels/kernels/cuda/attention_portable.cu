// Attention forward on any GPU from sm_80 on: a standard form, which is easy to check, and a flash form, which needs no
// memory for scores. Both compute in float32 on the ordinary units, without tensor cores.
//
// Compiled twice: with SEQUENCES, it has the flash form for sequences of different lengths instead.
#include "attention_sequences.cuh"

namespace attention {

// ---- standard: three kernels with all scores in memory -----------------------------------------------------------------

// One thread for each score: keys along x, queries along y, heads of all batches along z.
template <typename T>
__device__ void scores(const T* q, const T* k, float* to, const Problem& p) {
  int key = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
  if (key >= p.keys || row >= p.queries) return;
  for (int head = blockIdx.z; head < p.heads * p.batch; head += gridDim.z) {
    const T* a = row_of_queries(q, p, head, row);
    const T* b = row_of_keys(k, p, head, key);
    float sum = 0.0f;
    for (int i = 0; i < p.dim; i += 2) {
      float2 x = widen_pair(a + i), y = widen_pair(b + i);
      sum = fmaf(x.x, y.x, fmaf(x.y, y.y, sum));
    }
    to[(static_cast<long long>(head) * p.queries + row) * p.keys + key] = sum;
  }
}

// A warp for each row: scores become weights that add up to 1.
__device__ void weights(float* scores, float* log_sum_exps, const Problem& p, int mask) {
  int lane = threadIdx.x % 32;
  long long rows = static_cast<long long>(p.heads) * p.batch * p.queries;
  long long stride = static_cast<long long>(gridDim.x) * blockDim.x / 32;
  for (long long at = (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) / 32; at < rows; at += stride) {
    float* row = scores + at * p.keys;
    int begin, end;
    seen_by_mask(p, mask, at % p.queries, begin, end);
    float top = -INFINITY, sum = 0.0f;
    for (int i = begin + lane; i < end; i += 32) top = fmaxf(top, row[i]);
    for (int d = 16; d > 0; d /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, d));
    for (int i = begin + lane; i < end; i += 32) sum += exp2f((row[i] - top) * p.scale_log2);
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
    for (int i = lane; i < p.keys; i += 32)
      row[i] = i >= begin && i < end ? exp2f((row[i] - top) * p.scale_log2) / sum : 0.0f;
    if (lane == 0) log_sum_exps[at] = log_sum_exp(p, top, sum);
  }
}

// One thread for each two elements of a row of O: elements along x, queries along y, heads along z.
template <typename T>
__device__ void values(const float* weights, const T* v, T* to, const Problem& p) {
  int column = 2 * threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
  if (column >= p.dim || row >= p.queries) return;
  for (int head = blockIdx.z; head < p.heads * p.batch; head += gridDim.z) {
    const float* w = weights + (static_cast<long long>(head) * p.queries + row) * p.keys;
    float2 sum = {0.0f, 0.0f};
    for (int key = 0; key < p.keys; ++key) {
      float2 x = widen_pair(row_of_keys(v, p, head, key) + column);
      sum.x = fmaf(w[key], x.x, sum.x);
      sum.y = fmaf(w[key], x.y, sum.y);
    }
    T* o = const_cast<T*>(row_of_queries(to, p, head, row));
    *reinterpret_cast<uint32_t*>(o + column) = pack<T>(sum.x, sum.y);
  }
}

// ---- flash: one kernel, scores in registers ------------------------------------------------------------------------------

// A block has 4 warps of 4 queries each and walks over the keys 32 at a time: lane l of a warp computes the scores of key l
// with the warp's queries, the maximum and the sum go through the lanes, and then lane l adds to columns 2l, 2l + 1,
// 2l + 64, ... of O. K and V lie in shared memory, rows padded by one word so that lanes read different banks.
template <typename T, int D>
__device__ void flash(const T* q, const T* k, const T* v, T* output, float* log_sum_exps, const Problem& p, int mask) {
  constexpr int ROWS = 4, WARPS = 4, BLOCK = 32, PITCH = D + 2;
  __shared__ T q_tile[ROWS * WARPS * D];
  __shared__ T k_tile[BLOCK * PITCH];
  __shared__ T v_tile[BLOCK * PITCH];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int tiles = (p.queries + ROWS * WARPS - 1) / (ROWS * WARPS);
  long long total = static_cast<long long>(tiles) * p.heads * p.batch;
  for (long long tile = blockIdx.x; tile < total; tile += gridDim.x) {
    int head = tile / tiles, first_row = tile % tiles * (ROWS * WARPS);
    int last_row = min(first_row + ROWS * WARPS, p.queries) - 1;
    int tile_begin, tile_end, unused;
    seen_by_mask(p, mask, first_row, tile_begin, unused);
    seen_by_mask(p, mask, last_row, unused, tile_end);

    __syncthreads();
    for (int i = threadIdx.x; i < ROWS * WARPS * D / 2; i += blockDim.x) {
      int row = min(first_row + i / (D / 2), last_row);
      reinterpret_cast<uint32_t*>(q_tile)[i] =
          reinterpret_cast<const uint32_t*>(row_of_queries(q, p, head, row))[i % (D / 2)];
    }
    int row[ROWS], begin[ROWS], end[ROWS];
    float top[ROWS], sum[ROWS];
    float2 o[ROWS][D / 64];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      row[r] = first_row + warp * ROWS + r;
      seen_by_mask(p, mask, row[r], begin[r], end[r]);
      top[r] = -INFINITY;
      sum[r] = 0.0f;
#pragma unroll
      for (int c = 0; c < D / 64; ++c) o[r][c] = {0.0f, 0.0f};
    }

    for (int start = tile_begin; start < tile_end; start += BLOCK) {
      __syncthreads();
      for (int i = threadIdx.x; i < BLOCK * D / 2; i += blockDim.x) {
        int key = min(start + i / (D / 2), p.keys - 1), word = i % (D / 2);
        int at = i / (D / 2) * (PITCH / 2) + word;
        reinterpret_cast<uint32_t*>(k_tile)[at] = reinterpret_cast<const uint32_t*>(row_of_keys(k, p, head, key))[word];
        reinterpret_cast<uint32_t*>(v_tile)[at] = reinterpret_cast<const uint32_t*>(row_of_keys(v, p, head, key))[word];
      }
      __syncthreads();
      float s[ROWS] = {};
#pragma unroll 8
      for (int i = 0; i < D; i += 2) {
        float2 y = widen_pair(k_tile + lane * PITCH + i);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
          float2 x = widen_pair(q_tile + (warp * ROWS + r) * D + i);
          s[r] = fmaf(x.x, y.x, fmaf(x.y, y.y, s[r]));
        }
      }
      int key = start + lane;
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        if (key < begin[r] || key >= end[r]) s[r] = -INFINITY;
        float m = s[r];
        for (int d = 16; d > 0; d /= 2) m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, d));
        m = fmaxf(m, top[r]);
        // A row that has seen no key yet: weights against 0 are 0.
        float base = m == -INFINITY ? 0.0f : m;
        float rescale = exp2f((top[r] - base) * p.scale_log2);
        top[r] = m;
        s[r] = exp2f((s[r] - base) * p.scale_log2);
        sum[r] = fmaf(sum[r], rescale, s[r]);  // of this lane's keys
#pragma unroll
        for (int c = 0; c < D / 64; ++c) o[r][c] = {o[r][c].x * rescale, o[r][c].y * rescale};
      }
#pragma unroll 4
      for (int j = 0; j < BLOCK; ++j) {
        float w[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) w[r] = __shfl_sync(0xffffffff, s[r], j);
#pragma unroll
        for (int c = 0; c < D / 64; ++c) {
          float2 x = widen_pair(v_tile + j * PITCH + 64 * c + 2 * lane);
#pragma unroll
          for (int r = 0; r < ROWS; ++r) {
            o[r][c].x = fmaf(w[r], x.x, o[r][c].x);
            o[r][c].y = fmaf(w[r], x.y, o[r][c].y);
          }
        }
      }
    }

#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      for (int d = 16; d > 0; d /= 2) sum[r] += __shfl_xor_sync(0xffffffff, sum[r], d);
      if (row[r] >= p.queries) continue;
      float inverse = sum[r] == 0.0f ? 0.0f : 1.0f / sum[r];
      T* to = const_cast<T*>(row_of_queries(output, p, head, row[r]));
#pragma unroll
      for (int c = 0; c < D / 64; ++c)
        *reinterpret_cast<uint32_t*>(to + 64 * c + 2 * lane) = pack<T>(o[r][c].x * inverse, o[r][c].y * inverse);
      if (lane == 0)
        log_sum_exps[static_cast<long long>(head) * p.queries + row[r]] = log_sum_exp(p, top[r], sum[r]);
    }
  }
}

// A block along y takes the sequences, each of which is a problem of its own: see `sequence` in attention_sequences.cuh.
template <typename T, int D>
__device__ void flash_sequences(const T* q, const T* k, const T* v, T* output, float* log_sum_exps, const int2* starts,
                                int sequences, const Problem& p, int mask) {
  for (int i = blockIdx.y; i < sequences; i += gridDim.y) {
    Sequence its = sequence<D>(p, starts, i);
    flash<T, D>(q + its.query, k + its.key, v + its.key, output + its.query, log_sum_exps + its.row, its.problem, mask);
  }
}

}  // namespace attention

using attention::Problem;

#ifdef SEQUENCES
#define FLASH_SEQUENCES(TYPE, NAME, D)                                                                                  \
  extern "C" __global__ void __launch_bounds__(128) attention_flash_sequences_##NAME##_d##D(                            \
      const TYPE* q, const TYPE* k, const TYPE* v, TYPE* output, float* log_sum_exps, const int2* starts,               \
      int sequences, const Problem p, int mask) {                                                                       \
    attention::flash_sequences<TYPE, D>(q, k, v, output, log_sum_exps, starts, sequences, p, mask);                     \
  }
FLASH_SEQUENCES(__nv_bfloat16, bf16, 64)
FLASH_SEQUENCES(__nv_bfloat16, bf16, 128)
FLASH_SEQUENCES(__nv_bfloat16, bf16, 256)
FLASH_SEQUENCES(__half, f16, 64)
FLASH_SEQUENCES(__half, f16, 128)
FLASH_SEQUENCES(__half, f16, 256)
#else
extern "C" __global__ void attention_weights(float* scores, float* log_sum_exps, const Problem p, int mask) {
  attention::weights(scores, log_sum_exps, p, mask);
}
#define FLASH(TYPE, NAME, D)                                                                                            \
  extern "C" __global__ void __launch_bounds__(128)                                                                     \
      attention_flash_##NAME##_d##D(const TYPE* q, const TYPE* k, const TYPE* v, TYPE* output, float* log_sum_exps,     \
                                    const Problem p, int mask) {                                                        \
    attention::flash<TYPE, D>(q, k, v, output, log_sum_exps, p, mask);                                                  \
  }
#define PORTABLE(TYPE, NAME)                                                                                            \
  extern "C" __global__ void attention_scores_##NAME(const TYPE* q, const TYPE* k, float* scores, const Problem p) {    \
    attention::scores(q, k, scores, p);                                                                                 \
  }                                                                                                                     \
  extern "C" __global__ void attention_values_##NAME(const float* weights, const TYPE* v, TYPE* output,                 \
                                                     const Problem p) {                                                 \
    attention::values(weights, v, output, p);                                                                           \
  }                                                                                                                     \
  FLASH(TYPE, NAME, 64) FLASH(TYPE, NAME, 128) FLASH(TYPE, NAME, 256)
PORTABLE(__nv_bfloat16, bf16)
PORTABLE(__half, f16)
#endif
