// What all forms of attention have in common: the problem, who sees whom, and rounding.
//
//     O = softmax(scale * Q K^T) V          for each batch and head
//
// Row r of `queries` stands at key r + keys - queries: the last query stands at the last key. Causal masks and windows
// are counted from there.
#pragma once
#include "numbers.cuh"

namespace attention {
using namespace numbers;

enum Mask { FULL, CAUSAL, WINDOW };

constexpr float LOG2_E = 1.44269504f;

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

// Queries [begin, end) are what sees the key; none sees a key that lies outside.
template <Mask MASK>
__device__ __forceinline__ void seen_from(const Problem& p, int key, int& begin, int& end) {
  int place = key - p.keys + p.queries;  // the query that stands at the key
  begin = key < p.keys ? 0 : p.queries;
  end = p.queries;
  if (MASK == CAUSAL) begin = max(begin, place);
  if (MASK == WINDOW) {
    begin = max(begin, place - p.window_right);
    end = min(end, place + p.window_left + 1);
  }
}

__device__ __forceinline__ void seen_from_by_mask(const Problem& p, int mask, int key, int& begin, int& end) {
  if (mask == CAUSAL) seen_from<CAUSAL>(p, key, begin, end);
  else if (mask == WINDOW) seen_from<WINDOW>(p, key, begin, end);
  else seen_from<FULL>(p, key, begin, end);
}

// The row of Q, or of O, that has this query of this head, heads being counted through all batches.
template <typename T>
__device__ __forceinline__ const T* row_of_queries(const T* q, const Problem& p, int head, int row) {
  return q + head / p.heads * p.query_batch + head % p.heads * p.query_head + row * p.query_row;
}

// The row of K, or of V, that has this key for this head of queries, counted through all batches.
template <typename T>
__device__ __forceinline__ const T* row_of_keys(const T* k, const Problem& p, int head, int key) {
  int key_head = head % p.heads / (p.heads / p.key_heads);
  return k + head / p.heads * p.key_batch + key_head * p.key_head + key * p.key_row;
}

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// A flag that code is generated for.
template <bool VALUE>
struct Flag {
  static constexpr bool value = VALUE;
};

// A natural logarithm of the sum of exponentials, from the maximum of the raw scores and the sum relative to it.
__device__ __forceinline__ float log_sum_exp(const Problem& p, float top, float sum) {
  return sum == 0.0f ? -INFINITY : top * p.scale + logf(sum);
}

}  // namespace attention
