// A mixture of experts on any GPU from sm_80 on: routing, the products, and their combination. The products compute in float32
// on the ordinary units, without tensor cores; the other kernels serve all forms.
//
// Nothing depends on the order in which blocks run: what is added up atomically are counts, and each output has one writer.
#include "moe_routing.cuh"

namespace moe {

// ---- routing -----------------------------------------------------------------------------------------------------------

// The number of choices that experts did not take, and of tokens of which no expert took any.
struct Drops {
  int choices, tokens;
};

// A block for each chunk of tokens, a warp for each of its tokens in turn: chooses experts, weighs them, and counts the choices
// of the chunk: counts[expert][chunk]. Without `bias`, the largest logits are chosen; otherwise the largest sums of score and
// bias. Sets `drops` to 0 for `place`.
__device__ void route(const float* logits, const float* bias, float* weights, int* experts, int* counts, Drops* drops,
                      const Problem& p) {
  extern __shared__ unsigned loads_and_ranks[];  // counts of the chunk, then ranks of each warp's token
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  unsigned* ranks = loads_and_ranks + (1 + warp) * p.experts;
  if (blockIdx.x == 0 && threadIdx.x == 0) *drops = {0, 0};
  for (int chunk = blockIdx.x; chunk < p.chunks; chunk += gridDim.x) {
    for (int e = threadIdx.x; e < p.experts; e += blockDim.x) loads_and_ranks[e] = 0;
    __syncthreads();
    for (int token = chunk * CHUNK + warp; token < min((chunk + 1) * CHUNK, p.tokens); token += warps) {
      const float* row = logits + static_cast<long long>(token) * p.experts;
      float top = -INFINITY, all = 0.0f;
      for (int e = lane; e < p.experts; e += 32) top = fmaxf(top, row[e]);
      top = warp_max(top);
      if (!p.sigmoid && (bias || !p.renormalise)) {
        for (int e = lane; e < p.experts; e += 32) all += expf(row[e] - top);
        all = warp_sum(all);
      }
      for (int e = lane; e < p.experts; e += 32) {
        float rank = row[e];
        if (bias) rank = (p.sigmoid ? logistic(rank) : expf(rank - top) / all) + bias[e];
        ranks[e] = rank_of(rank);
      }
      // Lane i keeps the i-th choice.
      int mine = 0;
      for (int i = 0; i < p.top_k; ++i) {
        unsigned best = 0, first = p.experts;  // among equals, the lower expert
        for (int e = lane; e < p.experts; e += 32) {
          if (ranks[e] > best) best = ranks[e], first = e;
        }
        unsigned highest = __reduce_max_sync(0xffffffff, best);
        int expert = __reduce_min_sync(0xffffffff, best == highest ? first : p.experts);
        if (lane == i) mine = expert;
        if (lane == expert % 32) ranks[expert] = 0;
      }
      bool chosen = lane < p.top_k;
      float weight = 0.0f;
      if (p.sigmoid) {
        if (chosen) weight = logistic(row[mine]);
      } else {
        // A bias may leave out the largest logit, beside which the others' exponentials could all vanish.
        if (bias && p.renormalise) top = warp_max(chosen ? row[mine] : -INFINITY);
        if (chosen) weight = expf(row[mine] - top);
        if (!p.renormalise) weight /= all;
      }
      if (p.renormalise) {
        float sum = warp_sum(weight);
        weight = sum == 0.0f ? 0.0f : weight / sum;
      }
      if (chosen) {
        weights[static_cast<long long>(token) * p.top_k + lane] = weight;
        experts[static_cast<long long>(token) * p.top_k + lane] = mine;
        atomicAdd(loads_and_ranks + mine, 1u);
      }
      __syncwarp();
    }
    __syncthreads();
    for (int e = threadIdx.x; e < p.experts; e += blockDim.x) counts[static_cast<long long>(e) * p.chunks + chunk] = loads_and_ranks[e];
    __syncthreads();
  }
}

// A block for each expert: counts of chunks become sums over the chunks before, and `loads` has the choices of each expert.
__device__ void scan(int* counts, int* loads, const Problem& p) {
  for (int expert = blockIdx.x; expert < p.experts; expert += gridDim.x) {
    int* row = counts + static_cast<long long>(expert) * p.chunks;
    int done = 0, all;
    for (int start = 0; start < p.chunks; start += SCAN) {
      int chunk = start + threadIdx.x;
      int before = sum_before<SCAN>(chunk < p.chunks ? row[chunk] : 0, all);
      if (chunk < p.chunks) row[chunk] = done + before;
      done += all;
    }
    if (threadIdx.x == 0) loads[expert] = done;
  }
}

// What a call's products walk over.
struct Plan {
  int* row_tokens;
  int* row_choices;
  int* choice_rows;  // -1 for a choice that its expert did not take
  Span* spans;       // of experts
  Tile* tiles;
};

// A block for each chunk: gives each choice its row, unless its expert has `capacity` choices before, in the order of tokens;
// those are counted. The first block lists the tiles, and the rows of experts.
__device__ void place(const int* experts, const int* starts, const int* loads, const Plan& plan, int capacity, Drops* drops,
                      const Problem& p) {
  extern __shared__ int first_rows[];  // first rows of experts, then the experts that the chunk chose
  int* chosen = first_rows + p.experts;
  int rows = 0, row_tiles = 0;
  for (int start = 0; start < p.experts; start += SCAN) {
    int e = start + threadIdx.x, load = e < p.experts ? min(loads[e], capacity) : 0, all;
    int first = rows + sum_before<SCAN>(load, all);
    rows += all;
    if (e < p.experts) first_rows[e] = first;
    if (blockIdx.x == 0) {
      if (e < p.experts) plan.spans[e] = {first, load};
      int its = (load + TILE_ROWS - 1) / TILE_ROWS, at = 1 + row_tiles + sum_before<SCAN>(its, all);
      row_tiles += all;
      for (int i = 0; i < its; ++i) plan.tiles[at + i] = {first + i * TILE_ROWS, min(TILE_ROWS, load - i * TILE_ROWS), e, 0};
    }
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) plan.tiles[0] = {row_tiles, 0, 0, 0};
  for (int chunk = blockIdx.x; chunk < p.chunks; chunk += gridDim.x) {
    long long first = static_cast<long long>(chunk) * CHUNK * p.top_k;
    int choices = min(CHUNK, p.tokens - chunk * CHUNK) * p.top_k;
    for (int i = threadIdx.x; i < choices; i += blockDim.x) chosen[i] = experts[first + i];
    __syncthreads();
    for (int i = threadIdx.x; i < choices; i += blockDim.x) {
      int expert = chosen[i], before = 0;
      for (int j = 0; j < i; ++j) before += chosen[j] == expert;
      before += starts[static_cast<long long>(expert) * p.chunks + chunk];
      int row = before < capacity ? first_rows[expert] + before : -1;
      plan.choice_rows[first + i] = row;
      if (row >= 0) {
        plan.row_tokens[row] = chunk * CHUNK + i / p.top_k;
        plan.row_choices[row] = first + i;
      } else {
        atomicAdd(&drops->choices, 1);
      }
    }
    __syncthreads();
    if (capacity < p.tokens) {
      for (int i = threadIdx.x * p.top_k; i < choices; i += blockDim.x * p.top_k) {
        bool dropped = true;
        for (int c = 0; c < p.top_k; ++c) dropped &= plan.choice_rows[first + i + c] < 0;
        if (dropped) atomicAdd(&drops->tokens, 1);
      }
    }
  }
}

// ---- products ------------------------------------------------------------------------------------------------------------

// A block of 16 x 16 threads computes SIDE x SIDE elements, 2 x 2 for each thread: columns along x, parts of tiles along y. UP
// gathers rows from the tokens, multiplies with Gate and Up, keeps these products if `projections` is not null, and applies
// SwiGLU; otherwise rows lie in order.
template <typename T, bool UP>
__device__ void multiply(const T* from, const T* weights, const int* row_tokens, const Tile* tiles, T* to, T* projections,
                         const Problem& p) {
  constexpr int MATRICES = UP ? 2 : 1, PARTS = TILE_ROWS / SIDE;
  __shared__ float a[SIDE][SIDE + 1];
  __shared__ float b[MATRICES][SIDE][SIDE + 1];
  int depth = UP ? p.dim : p.hidden, width = UP ? p.hidden : p.dim;
  int x = threadIdx.x % 16, y = threadIdx.x / 16, column = blockIdx.x * SIDE;
  int parts = load_tile(tiles, 0).row * PARTS;
  for (int part = blockIdx.y; part < parts; part += gridDim.y) {
    Tile tile = load_tile(tiles, 1 + part / PARTS);
    int first = tile.row + part % PARTS * SIDE, rows = tile.rows - part % PARTS * SIDE;
    if (rows <= 0) continue;
    const T* its_weights = weights + static_cast<long long>(tile.expert) * MATRICES * width * depth;
    float sums[MATRICES][2][2] = {};
    for (int k = 0; k < depth; k += SIDE) {
      for (int i = threadIdx.x; i < SIDE * SIDE; i += 256) {
        int line = i / SIDE, element = k + i % SIDE;
        float value = 0.0f;
        if (line < rows && element < depth) {
          long long row = UP ? row_tokens[first + line] : first + line;
          value = widen(from[row * depth + element]);
        }
        a[line][i % SIDE] = value;
#pragma unroll
        for (int m = 0; m < MATRICES; ++m) {
          bool inside = column + line < width && element < depth;
          long long at = (static_cast<long long>(m) * width + column + line) * depth + element;
          b[m][line][i % SIDE] = inside ? widen(its_weights[at]) : 0.0f;
        }
      }
      __syncthreads();
#pragma unroll 8
      for (int i = 0; i < SIDE; ++i) {
#pragma unroll
        for (int m = 0; m < MATRICES; ++m) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
#pragma unroll
            for (int c = 0; c < 2; ++c) sums[m][r][c] = fmaf(a[y + 16 * r][i], b[m][x + 16 * c][i], sums[m][r][c]);
          }
        }
      }
      __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        int line = y + 16 * r, its_column = column + x + 16 * c;
        if (line >= rows || its_column >= width) continue;
        if (UP && projections) {
          T* its = projections + static_cast<long long>(first + line) * 2 * width + its_column;
          its[0] = narrow<T>(sums[0][r][c]), its[width] = narrow<T>(sums[MATRICES - 1][r][c]);
        }
        float value = UP ? swiglu(sums[0][r][c], sums[MATRICES - 1][r][c]) : sums[0][r][c];
        to[static_cast<long long>(first + line) * width + its_column] = narrow<T>(value);
      }
    }
  }
}

// ---- combination -----------------------------------------------------------------------------------------------------------

// A block for each token adds up the rows of its choices, in the order of its choices; without `weights`, each weighs 1. Choices
// without a row add nothing.
template <typename T>
__device__ void combine(const T* rows, const float* weights, const int* choice_rows, T* output, const Problem& p) {
  for (int token = blockIdx.x; token < p.tokens; token += gridDim.x) {
    long long first = static_cast<long long>(token) * p.top_k;
    auto weight = [&](int c) { return weights ? weights[first + c] : 1.0f; };
    add_rows(rows, choice_rows + first, p.top_k, weight, output + static_cast<long long>(token) * p.dim, p.dim);
  }
}

}  // namespace moe

using moe::Problem;
using moe::Tile;

extern "C" __global__ void __launch_bounds__(256)
    moe_route(const float* logits, const float* bias, float* weights, int* experts, int* counts, moe::Drops* drops,
              const Problem p) {
  moe::route(logits, bias, weights, experts, counts, drops, p);
}
extern "C" __global__ void __launch_bounds__(moe::SCAN) moe_scan(int* counts, int* loads, const Problem p) {
  moe::scan(counts, loads, p);
}
extern "C" __global__ void __launch_bounds__(moe::SCAN)
    moe_place(const int* experts, const int* starts, const int* loads, int* row_tokens, int* row_choices, int* choice_rows,
              moe::Span* spans, Tile* tiles, int capacity, moe::Drops* drops, const Problem p) {
  moe::place(experts, starts, loads, {row_tokens, row_choices, choice_rows, spans, tiles}, capacity, drops, p);
}
#define MOE(TYPE, NAME)                                                                                                  \
  extern "C" __global__ void __launch_bounds__(256)                                                                      \
      moe_up_portable_##NAME(const TYPE* weights, const TYPE* x, const int* row_tokens, const Tile* tiles, TYPE* h,      \
                             TYPE* projections, const Problem p) {                                                       \
    moe::multiply<TYPE, true>(x, weights, row_tokens, tiles, h, projections, p);                                         \
  }                                                                                                                      \
  extern "C" __global__ void __launch_bounds__(256)                                                                      \
      moe_down_portable_##NAME(const TYPE* weights, const TYPE* h, const Tile* tiles, TYPE* y, const Problem p) {        \
    moe::multiply<TYPE, false>(h, weights, nullptr, tiles, y, nullptr, p);                                               \
  }                                                                                                                      \
  extern "C" __global__ void __launch_bounds__(256)                                                                      \
      moe_combine_##NAME(const TYPE* rows, const float* weights, const int* choice_rows, TYPE* output, const Problem p) { \
    moe::combine<TYPE>(rows, weights, choice_rows, output, p);                                                           \
  }
MOE(__nv_bfloat16, bf16)
MOE(__half, f16)
