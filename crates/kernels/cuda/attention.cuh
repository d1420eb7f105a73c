// What all forms of attention have in common: the problem, who sees whom, and rounding.
//
//     O = softmax(scale * Q K^T) V          for each batch and head
//
// Row r of `queries` stands at key r + keys - queries: the last query stands at the last key. Causal masks and windows
// are counted from there.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace attention {

enum Mask { FULL, CAUSAL, WINDOW };

// The same bytes as `Problem` in src/attention/problem.rs. Strides are in elements.
struct Problem {
  long long query_batch, query_row, query_head;  // of Q and of O
  long long key_batch, key_row, key_head;        // of K and of V
  int batch, heads, key_heads, queries, keys, dim;
  int window_left, window_right;  // keys before and after its own that a query sees
  int query_tiles;                // Hopper: tiles of queries of one head
  int head_group;                 // Hopper: heads whose tiles are interleaved
  float scale;
  float scale_log2;  // scale * log2(e): exponentials are powers of two
};

// Keys [begin, end) are what the query of `row` sees.
template <Mask MASK>
__device__ __forceinline__ void seen(const Problem& p, int row, int& begin, int& end) {
  int place = row + p.keys - p.queries;
  begin = 0;
  end = p.keys;
  if (MASK == CAUSAL) end = min(end, place + 1);
  if (MASK == WINDOW) {
    end = min(end, place + 1 + p.window_right);
    begin = max(begin, place - p.window_left);
  }
}

// The same for a mask that is known only when the kernel runs.
__device__ __forceinline__ void seen_by_mask(const Problem& p, int mask, int row, int& begin, int& end) {
  if (mask == CAUSAL) seen<CAUSAL>(p, row, begin, end);
  else if (mask == WINDOW) seen<WINDOW>(p, row, begin, end);
  else seen<FULL>(p, row, begin, end);
}

// The row of Q, or of O, that has this query of this head, heads being counted through all batches.
template <typename T>
__device__ __forceinline__ const T* row_of_queries(const T* q, const Problem& p, int head, int row) {
  return q + head / p.heads * p.query_batch + head % p.heads * p.query_head + row * p.query_row;
}

// Two numbers rounded to 16 bits each.
template <typename T>
__device__ __forceinline__ uint32_t pack(float low, float high) {
  uint32_t both;
  if constexpr (std::is_same<T, __nv_bfloat16>::value)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

// A natural logarithm of the sum of exponentials, from the maximum of the raw scores and the sum relative to it.
__device__ __forceinline__ float log_sum_exp(const Problem& p, float top, float sum) {
  return sum == 0.0f ? -INFINITY : top * p.scale + logf(sum);
}

}  // namespace attention
