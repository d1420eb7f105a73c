// What the Hopper forms of attention backward have in common: tiles of keys and the blocks of queries that see them, weights from
// scores, gradients of scores, and the kernel that runs before the gradients.
#pragma once
#include "attention_tiles.cuh"

namespace attention {
using namespace hopper;

// Whether some of 64 keys are hidden from some of `count` queries.
template <Mask MASK>
__device__ __forceinline__ bool hides(const Problem& p, int key, int query, int count) {
  int place = key - p.keys + p.queries;
  bool some = key + 64 > p.keys;
  if (MASK == CAUSAL) some = some || query < place + 63;
  if (MASK == WINDOW)
    some = some || query < place + 63 - p.window_right || query + count - 1 > place + p.window_left;
  return some;
}

__device__ __forceinline__ float2 load_pair(uint32_t address) {
  float2 x;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(address));
  return x;
}

// This block's and this thread's number. They are read anew each time, so that what follows from them takes no register in
// between.
__device__ __forceinline__ int block_now() {
  int block;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
  return block;
}
__device__ __forceinline__ int thread_now() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}
__device__ __forceinline__ bool first_lane() { return thread_now() % 32 == 0; }

// The first of this thread's rows, and columns, of a wgmma's result.
__device__ __forceinline__ int first_row() {
  int thread = thread_now();
  return thread % 128 / 32 * 16 + thread % 32 / 4;
}
__device__ __forceinline__ int first_column() { return thread_now() % 4 * 2; }

// One tile of work: keys [key, key + N) of one head, and the blocks of queries [first, last) that see some of them. Of packed
// sequences, `batch` is its place in the plan.
struct Tile {
  int key, key_head, batch, first, last;
  int queries, keys;  // of the sequence
};

// Whether there is a tile of this number: grids for packed sequences have some blocks more.
__device__ __forceinline__ bool exists(const Problem& p, const PlannedTile* plan, int index) {
  return !plan || index < plan->row * p.key_heads;
}

template <class C>
__device__ __forceinline__ Tile tile_at(const Problem& p, const PlannedTile* plan, int index) {
  Tile t;
  int key_tiles = plan ? plan->row : (p.keys + C::N - 1) / C::N;
  int per_group = p.head_group * key_tiles;
  int group = index / per_group;
  int within = index - group * per_group;
  int heads = min(p.head_group, p.key_heads * p.batch - group * p.head_group);
  int n = within / heads;  // with causal masks the first keys are seen by most queries: the longest tiles come first
  int head = group * p.head_group + (within - n * heads);
  t.queries = p.queries;
  t.keys = p.keys;
  if (plan) {
    const PlannedTile& its = plan[1 + n];
    t.key = its.row;
    t.queries = its.queries;
    t.keys = its.keys;
    t.batch = 1 + n;
    t.key_head = head;
  } else {
    t.key = n * C::N;
    t.batch = head / p.key_heads;
    t.key_head = head - t.batch * p.key_heads;
  }
  Problem its = lengths(p, t.queries, t.keys);
  int begin, end, unused;
  seen_from<C::MASK>(its, t.key, begin, unused);
  seen_from<C::MASK>(its, min(t.key + C::N, t.keys) - 1, unused, end);
  t.first = begin / C::M;
  t.last = max(t.first, (end + C::M - 1) / C::M);
  return t;
}

// Blocks of queries of a head.
template <int M>
__device__ __forceinline__ int blocks_of_head(const Problem& p, const PlannedTile* plan, const Tile& t) {
  return plan ? (t.queries + M - 1) / M : p.query_tiles;
}
// The number of the first of them among all.
template <int M>
__device__ __forceinline__ uint32_t first_block_of(const Problem& p, const PlannedTile* plan, const Tile& t, int head) {
  if (plan) return plan[t.batch].first_block * p.heads + head * blocks_of_head<M>(p, plan, t);
  return (t.batch * p.heads + head) * p.query_tiles;
}

// The first element of the tile's head of keys.
template <int D>
__device__ __forceinline__ long long key_elements(const Problem& p, const PlannedTile* plan, const Tile& t) {
  if (plan) return packed_elements<D>(rows_first<D>(p), plan[t.batch].key, t.keys, p.key_heads, t.key_head);
  return t.batch * p.key_batch + t.key_head * p.key_head;
}

// Where block `number` of M queries lies: a row of O, of dO and of dQ, and a log-sum-exp.
struct Rows {
  long long element, sum;  // of the first row
  int count;               // rows that exist, at most M
};
template <class C>
__device__ __forceinline__ Rows rows_of_block(const Problem& p, const int2* starts, int sequences, int number) {
  if (starts) {
    QueryBlock b = query_block<C::M>(starts, sequences, p.heads, number);
    if (!b.exists) return {0, 0, 0};
    long long element = packed_elements<C::D>(rows_first<C::D>(p), b.query, b.queries, p.heads, b.head);
    return {element + b.row * p.query_row, static_cast<long long>(b.query) * p.heads + b.head * b.queries + b.row,
            min(b.queries - b.row, C::M)};
  }
  int head = number / p.query_tiles, row = number % p.query_tiles * C::M;
  return {head / p.heads * p.query_batch + head % p.heads * p.query_head + row * p.query_row,
          static_cast<long long>(head) * p.queries + row, min(p.queries - row, C::M)};
}

// Calls `body` for each block of queries of the tile, with the head of queries, the number of the block in the head, and that
// among all blocks: fewer than 2^32, since each has sums of dQ in memory.
template <int M, typename Body>
__device__ __forceinline__ void for_blocks(const Problem& p, const PlannedTile* plan, const Tile& t, Body body) {
  int group = p.heads / p.key_heads;
#pragma unroll 1
  for (int head = t.key_head * group, last = head + group; head < last; ++head) {
    uint32_t first_block = first_block_of<M>(p, plan, t, head);
#pragma unroll 1
    for (int m = t.first; m < t.last; ++m) body(head, m, first_block + m);
  }
}

// Turns scores into weights: S^T of 64 keys from `first_key` and M queries from `query`, as wgmma leaves them. `logs` is where
// the queries' log-sum-exps lie in shared memory.
template <Mask MASK, int M>
__device__ __forceinline__ void weigh(const Problem& p, float (&s)[M / 2], uint32_t logs, int first_key, int query) {
  logs += 4 * first_column();
#pragma unroll
  for (int j = 0; j < M / 8; ++j) {
    float2 l = load_pair(logs + 32 * j);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      s[4 * j + 2 * r] = exp2_fast(fmaf(s[4 * j + 2 * r], p.scale_log2, -l.x));
      s[4 * j + 2 * r + 1] = exp2_fast(fmaf(s[4 * j + 2 * r + 1], p.scale_log2, -l.y));
    }
  }
  if (!hides<MASK>(p, first_key, query, M)) return;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    int begin, end;
    seen_from<MASK>(p, first_key + first_row() + 8 * r, begin, end);
    begin -= query + first_column();
    end -= query + first_column();
#pragma unroll
    for (int i = 0; i < M / 4; ++i) {
      int column = i / 2 * 8 + i % 2;
      bool hidden = column < begin;
      if (MASK == WINDOW) hidden = hidden || column >= end;  // rows beyond the queries have weights of zero
      if (hidden) s[i / 2 * 4 + 2 * r + i % 2] = 0.0f;
    }
  }
}

// dS^T, rounded, from P^T and dP^T. `deltas` is where the queries' rowsum(dO * O) lie in shared memory.
template <typename T, int M>
__device__ __forceinline__ void score_gradients(const float (&weights)[M / 2], const float (&dp)[M / 2], uint32_t (&ds)[M / 4],
                                                uint32_t deltas) {
  deltas += 4 * first_column();
#pragma unroll
  for (int j = 0; j < M / 8; ++j) {
    float2 delta = load_pair(deltas + 32 * j);
#pragma unroll
    for (int r = 0; r < 2; ++r)
      ds[2 * j + r] = pack<T>(weights[4 * j + 2 * r] * (dp[4 * j + 2 * r] - delta.x),
                              weights[4 * j + 2 * r + 1] * (dp[4 * j + 2 * r + 1] - delta.y));
  }
}

// 8 elements of a row to a thread: sums them for rowsum(dO * O), and clears the sums of dQ. Rows are counted with those that
// fill up the last block of each head.
template <class C>
__device__ __forceinline__ void start(const void* output, const void* output_gradient, const float* log_sum_exps,
                                      float* statistics, float* query_sums, const Problem& p, const int2* starts,
                                      int sequences) {
  using T = typename C::T;
  constexpr int LANES = C::D / 8;
  int blocks = starts ? first_block<C::M>(p.queries, sequences) * p.heads : p.batch * p.heads * p.query_tiles;
  long long rows = static_cast<long long>(blocks) * C::M;
  long long first = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  // A warp's lanes stay together: rows * LANES is a multiple of 32.
  for (long long at = first; at < rows * LANES; at += static_cast<long long>(gridDim.x) * blockDim.x) {
    long long row = at / LANES;
    int lane = at % LANES, within = row % C::M;
    Rows its = rows_of_block<C>(p, starts, sequences, row / C::M);
    float sum = 0.0f;
    if (within < its.count) {
      long long element = its.element + within * p.query_row + 8 * lane;
      uint4 o = *reinterpret_cast<const uint4*>(static_cast<const T*>(output) + element);
      uint4 g = *reinterpret_cast<const uint4*>(static_cast<const T*>(output_gradient) + element);
      auto add = [&](uint32_t a, uint32_t b) {
        float2 x = unpack<T>(a), y = unpack<T>(b);
        sum = fmaf(x.x, y.x, fmaf(x.y, y.y, sum));
      };
      add(o.x, g.x), add(o.y, g.y), add(o.z, g.z), add(o.w, g.w);
    }
#pragma unroll
    for (int d = LANES / 2; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
    if (lane == 0) {
      float log = within < its.count ? log_sum_exps[its.sum + within] : -INFINITY;
      float* to = statistics + row / C::M * (2 * C::M) + row % C::M;
      to[0] = log == -INFINITY ? INFINITY : log * LOG2_E;
      to[C::M] = sum;
    }
    float4* clear = reinterpret_cast<float4*>(query_sums) + 2 * at;
    clear[0] = clear[1] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
}

}  // namespace attention
