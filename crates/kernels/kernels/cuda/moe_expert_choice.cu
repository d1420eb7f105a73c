// Expert choice on any GPU from sm_80 on: each expert takes the tokens of its largest scores, and all experts as many. The
// products are those of layers whose tokens choose; all forms use these kernels.
//
// Scores lie transposed, [experts, tokens], so that one block selects among the neighbours in memory of one expert: a radix
// select finds the smallest score that is taken, 8 bits at a time, and one walk over the tokens takes what is above it, and of
// what is equal the first. Nothing is sorted. Rows of an expert are in the order of tokens. A second pair of kernels lists the
// rows of each token, in the order of experts, so that sums over them have one order: results are the same in each run.
#include "moe_routing.cuh"

namespace moe {

constexpr int SELECT = 1024;  // threads of a block that selects

// A block for each chunk of tokens: the scores of the tokens, transposed.
__device__ void scores(const float* logits, float* to, const Problem& p) {
  __shared__ float tops[CHUNK], sums[CHUNK];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  for (int chunk = blockIdx.x; chunk < p.chunks; chunk += gridDim.x) {
    int first = chunk * CHUNK, count = min(CHUNK, p.tokens - first);
    for (int i = warp; i < count && !p.sigmoid; i += warps) {
      const float* row = logits + static_cast<long long>(first + i) * p.experts;
      float top = -INFINITY, sum = 0.0f;
      for (int e = lane; e < p.experts; e += 32) top = fmaxf(top, row[e]);
      top = warp_max(top);
      for (int e = lane; e < p.experts; e += 32) sum += expf(row[e] - top);
      sum = warp_sum(sum);
      if (lane == 0) tops[i] = top, sums[i] = sum;
    }
    __syncthreads();
    for (int at = threadIdx.x; at < CHUNK * p.experts; at += blockDim.x) {
      int i = at % CHUNK, expert = at / CHUNK;
      if (i >= count) continue;
      float logit = logits[static_cast<long long>(first + i) * p.experts + expert];
      to[static_cast<long long>(expert) * p.tokens + first + i] = p.sigmoid ? logistic(logit) : expf(logit - tops[i]) / sums[i];
    }
    __syncthreads();
  }
}

// What experts choose, [experts, capacity] each, and what the products walk over.
struct Chosen {
  int* tokens;
  float* weights;
  int* row_tokens;
  int* row_choices;
  Span* spans;
  Tile* tiles;
};

// A block of SELECT threads for each expert. Its scores become rows: slots[expert][token] is the row of the token, or -1.
__device__ void select(int* slots, const Chosen& chosen, int capacity, const Problem& p) {
  __shared__ unsigned histogram[256], digit, left;
  int expert = blockIdx.x, tiles = (capacity + TILE_ROWS - 1) / TILE_ROWS, all;
  int* its = slots + static_cast<long long>(expert) * p.tokens;
  // The bits of the smallest rank that is taken which are known, and how many of the ranks that begin with them are taken.
  unsigned smallest = 0, known = 0, take = capacity;
  for (int shift = 24; shift >= 0; shift -= 8) {
    if (threadIdx.x < 256) histogram[threadIdx.x] = 0;
    __syncthreads();
    for (int token = threadIdx.x; token < p.tokens; token += SELECT) {
      unsigned rank = rank_of(__int_as_float(its[token]));
      if ((rank & known) == smallest) atomicAdd(histogram + (rank >> shift & 255), 1u);
    }
    __syncthreads();
    // Thread i has the i-th digit from the largest down.
    unsigned mine = threadIdx.x < 256 ? histogram[255 - threadIdx.x] : 0;
    unsigned before = sum_before<SELECT>(mine, all);
    if (before < take && before + mine >= take) digit = 255 - threadIdx.x, left = take - before;
    __syncthreads();
    smallest |= digit << shift;
    known |= 255u << shift;
    take = left;
  }
  int row = expert * capacity, equals = 0;
  for (int start = 0; start < p.tokens; start += SELECT) {
    int token = start + threadIdx.x;
    float score = token < p.tokens ? __int_as_float(its[token]) : 0.0f;
    unsigned rank = token < p.tokens ? rank_of(score) : 0;
    int equals_before = equals + sum_before<SELECT>(rank == smallest, all);
    equals += all;
    bool taken = rank > smallest || (rank == smallest && equals_before < take);
    int its_row = row + sum_before<SELECT>(taken, all);
    row += all;
    if (token < p.tokens) its[token] = taken ? its_row : -1;
    if (taken) {
      chosen.tokens[its_row] = chosen.row_tokens[its_row] = token;
      chosen.weights[its_row] = score;
      chosen.row_choices[its_row] = its_row;
    }
  }
  for (int i = threadIdx.x; i < tiles; i += SELECT) {
    int first = i * TILE_ROWS;
    chosen.tiles[1 + expert * tiles + i] = {expert * capacity + first, min(TILE_ROWS, capacity - first), expert, 0};
  }
  if (threadIdx.x == 0) {
    chosen.spans[expert] = {expert * capacity, capacity};
    if (expert == 0) chosen.tiles[0] = {p.experts * tiles, 0, 0, 0};
  }
}

// A block for each SCAN tokens: counts the rows of each token, sums[block] of all, and starts[token] of those before in the block.
__device__ void count(const int* slots, int* loads, int* starts, int* sums, const Problem& p) {
  int blocks = (p.tokens + SCAN - 1) / SCAN;
  for (int block = blockIdx.x; block < blocks; block += gridDim.x) {
    int token = block * SCAN + threadIdx.x, rows = 0, all;
    for (int e = 0; e < p.experts && token < p.tokens; ++e) rows += slots[static_cast<long long>(e) * p.tokens + token] >= 0;
    int before = sum_before<SCAN>(rows, all);
    if (token < p.tokens) starts[token] = before, loads[token] = rows;
    if (threadIdx.x == 0) sums[block] = all;
  }
}

// After `count`: lists the rows of each token, those of token t from starts[t] to starts[t + 1].
__device__ void list(const int* slots, const int* sums, int* starts, int* token_rows, const Problem& p) {
  int blocks = (p.tokens + SCAN - 1) / SCAN;
  for (int block = blockIdx.x; block < blocks; block += gridDim.x) {
    int part = 0, before;
    for (int i = threadIdx.x; i < block; i += SCAN) part += sums[i];
    sum_before<SCAN>(part, before);
    int token = block * SCAN + threadIdx.x;
    if (token >= p.tokens) continue;
    int at = before + starts[token];
    starts[token] = at;
    for (int e = 0; e < p.experts; ++e) {
      int row = slots[static_cast<long long>(e) * p.tokens + token];
      if (row >= 0) token_rows[at++] = row;
    }
    if (token == p.tokens - 1) starts[p.tokens] = at;
  }
}

// A block for each token adds up its rows; without `weights`, which are those of rows, each weighs 1.
template <typename T>
__device__ void combine(const T* rows, const float* weights, const int* starts, const int* token_rows, T* output,
                        const Problem& p) {
  for (int token = blockIdx.x; token < p.tokens; token += gridDim.x) {
    int first = starts[token];
    const int* its_rows = token_rows + first;
    auto weight = [&](int c) { return weights ? weights[its_rows[c]] : 1.0f; };
    add_rows(rows, its_rows, starts[token + 1] - first, weight, output + static_cast<long long>(token) * p.dim, p.dim);
  }
}

// A warp for each token: adds up the parts of its weights' gradients, and leads them through the gate.
__device__ void gate_gradient(const float* logits, const float* weights, const int* starts, const int* token_rows,
                              const float* weight_parts, int parts, int capacity, float* to, const Problem& p) {
  extern __shared__ float of_warps[];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  float* its = of_warps + warp * p.experts;  // gradients of scores
  for (long long token = static_cast<long long>(blockIdx.x) * warps + warp; token < p.tokens;
       token += static_cast<long long>(gridDim.x) * warps) {
    const float* row = logits + token * p.experts;
    for (int e = lane; e < p.experts; e += 32) its[e] = 0.0f;
    __syncwarp();
    float mean = 0.0f;
    for (int i = starts[token] + lane; i < starts[token + 1]; i += 32) {
      int its_row = token_rows[i];
      const float* part = weight_parts + static_cast<long long>(its_row) * parts;
      float gradient = 0.0f;
      for (int j = 0; j < parts; ++j) gradient += part[j];
      its[its_row / capacity] = gradient;
      mean += weights[its_row] * gradient;
    }
    mean = warp_sum(mean);
    __syncwarp();
    float* to_row = to + token * p.experts;
    if (p.sigmoid) {
      for (int e = lane; e < p.experts; e += 32) to_row[e] = logistic(row[e]) * logistic(-row[e]) * its[e];
    } else {
      float top = -INFINITY, sum = 0.0f;
      for (int e = lane; e < p.experts; e += 32) top = fmaxf(top, row[e]);
      top = warp_max(top);
      for (int e = lane; e < p.experts; e += 32) sum += expf(row[e] - top);
      sum = warp_sum(sum);
      for (int e = lane; e < p.experts; e += 32) to_row[e] = expf(row[e] - top) / sum * (its[e] - mean);
    }
    __syncwarp();
  }
}

}  // namespace moe

using moe::Problem;

extern "C" __global__ void __launch_bounds__(256) moe_expert_scores(const float* logits, float* scores, const Problem p) {
  moe::scores(logits, scores, p);
}
extern "C" __global__ void __launch_bounds__(moe::SELECT)
    moe_expert_select(int* slots, int* tokens, float* weights, int* row_tokens, int* row_choices, moe::Span* spans,
                      moe::Tile* tiles, int capacity, const Problem p) {
  moe::select(slots, {tokens, weights, row_tokens, row_choices, spans, tiles}, capacity, p);
}
extern "C" __global__ void __launch_bounds__(moe::SCAN)
    moe_expert_count(const int* slots, int* loads, int* starts, int* sums, const Problem p) {
  moe::count(slots, loads, starts, sums, p);
}
extern "C" __global__ void __launch_bounds__(moe::SCAN)
    moe_expert_list(const int* slots, const int* sums, int* starts, int* token_rows, const Problem p) {
  moe::list(slots, sums, starts, token_rows, p);
}
extern "C" __global__ void __launch_bounds__(256)
    moe_expert_gate_gradient(const float* logits, const float* weights, const int* starts, const int* token_rows,
                             const float* weight_parts, int parts, int capacity, float* gradient, const Problem p) {
  moe::gate_gradient(logits, weights, starts, token_rows, weight_parts, parts, capacity, gradient, p);
}
#define MOE(TYPE, NAME)                                                                                               \
  extern "C" __global__ void __launch_bounds__(256)                                                                   \
      moe_expert_combine_##NAME(const TYPE* rows, const float* weights, const int* starts, const int* token_rows,     \
                                TYPE* output, const Problem p) {                                                      \
    moe::combine<TYPE>(rows, weights, starts, token_rows, output, p);                                                 \
  }
MOE(__nv_bfloat16, bf16)
MOE(__half, f16)
