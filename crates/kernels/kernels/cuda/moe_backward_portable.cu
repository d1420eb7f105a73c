// The backward pass of a mixture of experts on any GPU from sm_80 on, in float32 on the ordinary units, and the gradient of the
// logits, which serves all forms.
//
//     hidden gradient:  dH = dO Down, then SwiGLU's gradient: dG, dU, H times its weight, parts of the weights' gradients
//     token gradient:   rows [dG dU] [Gate; Up], which moe_combine adds up for each token
//     weight gradients: [dG dU]^T X and dO^T (w H), for each expert
//
// Each output has one writer, and sums have one order: results are the same in each run.
#include "moe.cuh"

namespace moe {

// A block of 16 x 16 threads computes SIDE x SIDE elements of a product, 2 x 2 for each thread: rows threadIdx.x / 16 and 16
// below, columns threadIdx.x % 16 and 16 to the right. `left(line, k)` and `right(k, column)` are elements of the operands, 0
// outside of them. All threads call it. LEFT_DOWN says that elements of `left` with the same k are neighbours in memory, rather
// than those of the same line.
template <bool LEFT_DOWN, class Left, class Right>
__device__ void multiply(float (&sums)[2][2], int depth, Left left, Right right) {
  __shared__ float a[SIDE][SIDE + 1];
  __shared__ float b[SIDE][SIDE + 1];
  int x = threadIdx.x % 16, y = threadIdx.x / 16;
  for (int r = 0; r < 2; ++r) sums[r][0] = sums[r][1] = 0.0f;
  for (int k = 0; k < depth; k += SIDE) {
    for (int i = threadIdx.x; i < SIDE * SIDE; i += 256) {
      int high = i / SIDE, low = i % SIDE;
      if (LEFT_DOWN) a[low][high] = k + high < depth ? left(low, k + high) : 0.0f;
      else a[high][low] = k + low < depth ? left(high, k + low) : 0.0f;
      b[high][low] = k + high < depth ? right(k + high, low) : 0.0f;
    }
    __syncthreads();
#pragma unroll 8
    for (int i = 0; i < SIDE; ++i) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
#pragma unroll
        for (int c = 0; c < 2; ++c) sums[r][c] = fmaf(a[y + 16 * r][i], b[i][x + 16 * c], sums[r][c]);
      }
    }
    __syncthreads();
  }
}

// Calls `work(tile, first, rows)` for this block's parts of tiles: `rows` rows from `first` on.
template <class Work>
__device__ __forceinline__ void for_parts(const Tile* tiles, Work work) {
  constexpr int PARTS = TILE_ROWS / SIDE;
  int parts = load_tile(tiles, 0).row * PARTS;
  for (int part = blockIdx.y; part < parts; part += gridDim.y) {
    Tile tile = load_tile(tiles, 1 + part / PARTS);
    int rows = tile.rows - part % PARTS * SIDE;
    if (rows > 0) work(tile, tile.row + part % PARTS * SIDE, rows);
  }
}

// Columns along x, parts of tiles along y.
template <typename T>
__device__ void hidden_gradient(const T* down, const T* output_gradient, const int* row_tokens, const Tile* tiles,
                                T* projection_gradient, const T* projections, const float* gate_weights,
                                const int* row_choices, T* weighted, float* weight_parts, const Problem& p) {
  int x = threadIdx.x % 16, y = threadIdx.x / 16, column = blockIdx.x * SIDE;
  for_parts(tiles, [&](const Tile& tile, int first, int rows) {
    const T* weights = down + static_cast<long long>(tile.expert) * p.dim * p.hidden + column;
    float sums[2][2];
    multiply<false>(
        sums, p.dim,
        [&](int line, int k) {
          return line < rows ? widen(output_gradient[static_cast<long long>(row_tokens[first + line]) * p.dim + k]) : 0.0f;
        },
        [&](int k, int c) { return column + c < p.hidden ? widen(weights[static_cast<long long>(k) * p.hidden + c]) : 0.0f; });
    for (int r = 0; r < 2; ++r) {
      int line = y + 16 * r;
      long long row = first + min(line, rows - 1);
      float weight = gate_weights[row_choices[row]], sum = 0.0f;
      for (int c = 0; c < 2; ++c) {
        int its = column + x + 16 * c;
        if (line >= rows || its >= p.hidden) continue;
        long long gate = row * 2 * p.hidden + its, up = gate + p.hidden;
        SwigluGradient gradient(widen(projections[gate]), widen(projections[up]), sums[r][c], weight);
        projection_gradient[gate] = narrow<T>(gradient.of_gate);
        projection_gradient[up] = narrow<T>(gradient.of_up);
        weighted[row * p.hidden + its] = narrow<T>(gradient.weighted);
        sum += gradient.of_weight;
      }
      for (int d = 8; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
      if (line < rows && x == 0) weight_parts[row * gridDim.x + blockIdx.x] = sum;
    }
  });
}

// Columns along x, parts of tiles along y.
template <typename T>
__device__ void token_gradient(const T* up, const T* projection_gradient, const Tile* tiles, T* to, const Problem& p) {
  int x = threadIdx.x % 16, y = threadIdx.x / 16, column = blockIdx.x * SIDE, depth = 2 * p.hidden;
  for_parts(tiles, [&](const Tile& tile, int first, int rows) {
    const T* weights = up + static_cast<long long>(tile.expert) * depth * p.dim + column;
    float sums[2][2];
    multiply<false>(
        sums, depth,
        [&](int line, int k) {
          return line < rows ? widen(projection_gradient[static_cast<long long>(first + line) * depth + k]) : 0.0f;
        },
        [&](int k, int c) { return column + c < p.dim ? widen(weights[static_cast<long long>(k) * p.dim + c]) : 0.0f; });
    for (int r = 0; r < 2; ++r) {
      for (int c = 0; c < 2; ++c) {
        int line = y + 16 * r, its = column + x + 16 * c;
        if (line < rows && its < p.dim) to[static_cast<long long>(first + line) * p.dim + its] = narrow<T>(sums[r][c]);
      }
    }
  });
}

// The product of two operands whose rows are those of an expert, [height, width] for each expert: columns along x, experts and
// rows of the result along y. UP: of projection gradients and tokens; otherwise of output gradients and weighted hidden layers.
template <typename T, bool UP>
__device__ void weight_gradient(const T* in_order, const T* tokens, const int* row_tokens, const Span* spans, T* to,
                                const Problem& p) {
  int height = UP ? 2 * p.hidden : p.dim, width = UP ? p.dim : p.hidden, parts = (height + SIDE - 1) / SIDE;
  int x = threadIdx.x % 16, y = threadIdx.x / 16, column = blockIdx.x * SIDE;
  for (int part = blockIdx.y; part < p.experts * parts; part += gridDim.y) {
    int expert = part / parts, top = part % parts * SIDE;
    Span span = spans[expert];
    auto of = [&](bool gathered, int k, int at, int size) {
      long long row = gathered ? row_tokens[span.row + k] : span.row + k;
      return at < size ? widen((gathered ? tokens : in_order)[row * size + at]) : 0.0f;
    };
    float sums[2][2];
    multiply<true>(
        sums, span.rows, [&](int line, int k) { return of(!UP, k, top + line, height); },
        [&](int k, int c) { return of(UP, k, column + c, width); });
    for (int r = 0; r < 2; ++r) {
      for (int c = 0; c < 2; ++c) {
        int line = top + y + 16 * r, its = column + x + 16 * c;
        if (line < height && its < width)
          to[(static_cast<long long>(expert) * height + line) * width + its] = narrow<T>(sums[r][c]);
      }
    }
  }
}

// A warp for each token: adds up the parts of its weights' gradients, and leads them through the gate.
__device__ void gate_gradient(const float* logits, const float* weights, const int* experts, const int* choice_rows,
                              const float* weight_parts, int parts, float* to, const Problem& p) {
  extern __shared__ float of_warps[];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  float* its = of_warps + warp * p.experts;  // gradients of what the softmax gives, or of logits
  for (long long token = static_cast<long long>(blockIdx.x) * warps + warp; token < p.tokens;
       token += static_cast<long long>(gridDim.x) * warps) {
    const float* row = logits + token * p.experts;
    for (int e = lane; e < p.experts; e += 32) its[e] = 0.0f;
    __syncwarp();
    bool chosen = lane < p.top_k;
    long long choice = token * p.top_k + lane;
    int expert = chosen ? experts[choice] : 0;
    float weight = chosen ? weights[choice] : 0.0f, gradient = 0.0f;
    long long its_row = chosen ? choice_rows[choice] : -1;
    if (its_row >= 0) {
      const float* part = weight_parts + its_row * parts;
      for (int i = 0; i < parts; ++i) gradient += part[i];
    }
    // Of a softmax, or of quotients: what all weights have in common is taken off.
    float mean = warp_sum(weight * gradient), slope = 1.0f;
    if (p.sigmoid) {
      slope = 1.0f / (1.0f + expf(row[expert]));  // 1 - logistic
      if (!p.renormalise) mean = 0.0f;
    }
    bool all = !p.sigmoid && !p.renormalise;
    if (chosen) its[expert] = all ? gradient : weight * slope * (gradient - mean);
    __syncwarp();
    float* to_row = to + token * p.experts;
    if (all) {
      float top = -INFINITY, sum = 0.0f;
      for (int e = lane; e < p.experts; e += 32) top = fmaxf(top, row[e]);
      for (int d = 16; d > 0; d /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, d));
      for (int e = lane; e < p.experts; e += 32) sum += expf(row[e] - top);
      sum = warp_sum(sum);
      for (int e = lane; e < p.experts; e += 32) to_row[e] = expf(row[e] - top) / sum * (its[e] - mean);
    } else {
      for (int e = lane; e < p.experts; e += 32) to_row[e] = its[e];
    }
    __syncwarp();
  }
}

}  // namespace moe

using moe::Problem;
using moe::Tile;

extern "C" __global__ void __launch_bounds__(256)
    moe_gate_gradient(const float* logits, const float* weights, const int* experts, const int* choice_rows,
                      const float* weight_parts, int parts, float* gradient, const Problem p) {
  moe::gate_gradient(logits, weights, experts, choice_rows, weight_parts, parts, gradient, p);
}
#define MOE(TYPE, NAME)                                                                                                      \
  extern "C" __global__ void __launch_bounds__(256) moe_hidden_gradient_portable_##NAME(                                     \
      const TYPE* down, const TYPE* output_gradient, const int* row_tokens, const Tile* tiles, TYPE* projection_gradient,    \
      const TYPE* projections, const float* gate_weights, const int* row_choices, TYPE* weighted, float* weight_parts,       \
      const Problem p) {                                                                                                     \
    moe::hidden_gradient(down, output_gradient, row_tokens, tiles, projection_gradient, projections, gate_weights,           \
                         row_choices, weighted, weight_parts, p);                                                            \
  }                                                                                                                          \
  extern "C" __global__ void __launch_bounds__(256)                                                                          \
      moe_token_gradient_portable_##NAME(const TYPE* up, const TYPE* projection_gradient, const Tile* tiles, TYPE* dx,       \
                                         const Problem p) {                                                                  \
    moe::token_gradient(up, projection_gradient, tiles, dx, p);                                                              \
  }                                                                                                                          \
  extern "C" __global__ void __launch_bounds__(256)                                                                          \
      moe_up_gradient_portable_##NAME(const TYPE* rows, const TYPE* tokens, const int* row_tokens, const moe::Span* spans,   \
                                      TYPE* gradient, const Problem p) {                                                     \
    moe::weight_gradient<TYPE, true>(rows, tokens, row_tokens, spans, gradient, p);                                          \
  }                                                                                                                          \
  extern "C" __global__ void __launch_bounds__(256)                                                                          \
      moe_down_gradient_portable_##NAME(const TYPE* rows, const TYPE* tokens, const int* row_tokens, const moe::Span* spans, \
                                        TYPE* gradient, const Problem p) {                                                   \
    moe::weight_gradient<TYPE, false>(rows, tokens, row_tokens, spans, gradient, p);                                         \
  }
MOE(__nv_bfloat16, bf16)
MOE(__half, f16)
