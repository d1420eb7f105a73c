// Tiles of packed sequences (attention_sequences.cuh) for the Hopper forms.
//
// The idea. A kernel takes its tiles from a list in memory, the plan, which a small kernel has made before, the longest first;
// the list is absent (null) for batches of one length, whose tiles follow from their numbers. The copy engine must not bring rows
// of the next sequence, which may hold anything, NaN included: a weight of zero would not hide them. So all sequences end at the
// edge of one tensor map, wherever they lie in memory: see `Place`.
//
// Invariant: blocks of queries of sequence i, of M rows each, are numbered from `first_block(start, i) * heads` on, head by head. These
// numbers follow from the starts alone, and leave out at most one number for each sequence and head.
#pragma once
#include "attention_sequences.cuh"
#include "hopper.cuh"

namespace attention {

// The first entry of a plan has the number of tiles in `row`, the others have one tile each.
struct alignas(16) PlannedTile {
  int query, queries, key, keys;  // the sequence's first row of queries and of keys among all, and how many it has
  int row;                        // the tile's first row, of queries or of keys, in the sequence
  int first_block;                // see above
  int unused[2];
};

template <int M>
__device__ __forceinline__ int first_block(int start, int sequence) {
  return start / M + sequence;
}

// The problem of the sequence alone, as far as masks go.
__device__ __forceinline__ Problem lengths(const Problem& p, int queries, int keys) {
  Problem its = p;
  its.queries = queries;
  its.keys = keys;
  return its;
}

// Whether heads of a row lie together.
template <int D>
__device__ __forceinline__ bool rows_first(const Problem& p) {
  return p.query_row != D || p.key_row != D;
}

// Where row 0 and panel 0 of a head lie in a tensor map, as its coordinates 1 to 4. A map of packed sequences has 2^30 rows. Its
// sequences end at the last one, so that copies beyond their end are zeros, and the last two dimensions lead back from there: a step
// along the one is a row, and 2^30 steps along the other are -2^30 rows, modulo 2^64 (`packed_map` in src/attention/hopper.rs).
struct Place {
  int row, panel, head, batch;
};
constexpr int EDGE = 1 << 30;

// Where the head begins of a sequence with rows `start` to `start + rows`.
template <int D>
__device__ __forceinline__ Place packed_place(bool rows_first, int start, int rows, int heads, int head) {
  if (rows_first) return {EDGE - rows, head * (D / 64), start + rows, EDGE};
  return {EDGE - rows, 0, start * heads + (head + 1) * rows, EDGE};
}

// Copies rows of a head from `row` on, and panels from `panel` on.
__device__ __forceinline__ void tma_load_rows(uint32_t to, const CUtensorMap* map, uint32_t full, const Place& at, int row,
                                              int panel = 0) {
  hopper::tma_load(to, map, full, 0, at.row + row, at.panel + panel, at.head, at.batch);
}

// Where a head of queries begins, or one of keys: of the sequence of a tile of the plan, or of a batch if there is no plan.
template <int D>
__device__ __forceinline__ Place query_place(const Problem& p, const PlannedTile* plan, int batch, int head) {
  if (!plan) return {0, 0, head, batch};
  return packed_place<D>(rows_first<D>(p), plan[batch].query, plan[batch].queries, p.heads, head);
}
template <int D>
__device__ __forceinline__ Place key_place(const Problem& p, const PlannedTile* plan, int batch, int key_head) {
  if (!plan) return {0, 0, key_head, batch};
  return packed_place<D>(rows_first<D>(p), plan[batch].key, plan[batch].keys, p.key_heads, key_head);
}

// The first element of a head of a sequence.
template <int D>
__device__ __forceinline__ long long packed_elements(bool rows_first, int start, int rows, int heads, int head) {
  long long first = static_cast<long long>(start) * heads;
  return (first + static_cast<long long>(head) * (rows_first ? 1 : rows)) * D;
}

// The sequence for which `number` lies between what `at` tells of it and of the next: the last one of which it is not above.
template <typename At>
__device__ __forceinline__ int sequence_of(int sequences, int number, At at) {
  int low = 0, high = sequences;
  while (high - low > 1) {
    int middle = (low + high) / 2;
    if (at(middle) <= number) low = middle;
    else high = middle;
  }
  return low;
}

// A block of M queries of one head, by its number.
struct QueryBlock {
  int query, queries;  // of the sequence
  int head, row;       // the first row in the sequence
  bool exists;
};
template <int M>
__device__ __forceinline__ QueryBlock query_block(const int2* starts, int sequences, int heads, int number) {
  int of_head = number / heads;
  int i = sequence_of(sequences, of_head, [&](int i) { return first_block<M>(starts[i].x, i); });
  int start = starts[i].x, queries = starts[i + 1].x - start, tiles = (queries + M - 1) / M;
  int within = number - first_block<M>(start, i) * heads;
  QueryBlock b = {start, queries, 0, 0, within < tiles * heads};
  if (b.exists) {
    b.head = within / tiles;
    b.row = (within - b.head * tiles) * M;
  }
  return b;
}

// One block of BUCKETS threads writes the plan of all tiles of `rows` queries (or keys), which see (or are seen by) blocks of
// `others` rows. Tiles go into buckets by the number of these blocks, shifted right by `shift`.
constexpr int BUCKETS = 1024;

__device__ __forceinline__ void plan(const int2* starts, int sequences, PlannedTile* to, const Problem& p, int mask, bool of_keys,
                                     int rows, int others, int blocks_of, int shift) {
  __shared__ int places[BUCKETS];
  int thread = threadIdx.x;
  int all = of_keys ? p.keys : p.queries;
  auto start_of = [&](int i) { return of_keys ? starts[i].y : starts[i].x; };
  auto for_tiles = [&](auto body) {
    for (int number = thread; number < all / rows + sequences; number += BUCKETS) {
      int i = sequence_of(sequences, number, [&](int i) { return start_of(i) / rows + i; });
      int row = (number - start_of(i) / rows - i) * rows, length = start_of(i + 1) - start_of(i);
      if (row >= length) continue;
      int2 start = starts[i], end = starts[i + 1];
      PlannedTile tile = {start.x, end.x - start.x, start.y, end.y - start.y, row, start.x / blocks_of + i, {0, 0}};
      Problem its = lengths(p, tile.queries, tile.keys);
      int first, last, unused, most = min(row + rows, length) - 1;
      if (of_keys) seen_from_by_mask(its, mask, row, first, unused), seen_from_by_mask(its, mask, most, unused, last);
      else seen_by_mask(its, mask, row, first, unused), seen_by_mask(its, mask, most, unused, last);
      int blocks = max(0, (last + others - 1) / others - first / others);
      body(tile, BUCKETS - 1 - min(blocks >> shift, BUCKETS - 1));
    }
  };
  places[thread] = 0;
  __syncthreads();
  for_tiles([&](const PlannedTile&, int bucket) { atomicAdd(places + bucket, 1); });
  __syncthreads();
  for (int distance = 1; distance < BUCKETS; distance *= 2) {
    int before = thread >= distance ? places[thread - distance] : 0;
    __syncthreads();
    places[thread] += before;
    __syncthreads();
  }
  if (thread == BUCKETS - 1) to->row = places[thread];
  // Each bucket is filled from its end.
  for_tiles([&](const PlannedTile& tile, int bucket) { to[atomicSub(places + bucket, 1)] = tile; });
}

}  // namespace attention
