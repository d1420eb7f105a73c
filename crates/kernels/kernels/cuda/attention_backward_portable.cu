// Attention backward on any GPU from sm_80 on, in float32 on the ordinary units. With the saved log-sum-exp L of each row:
//
//     P = exp(scale * Q K^T - L)    dV = P^T dO    dP = dO V^T    dS = P * (dP - rowsum(dO * O))
//     dQ = scale * dS K             dK = scale * dS^T Q
//
// Two kernels, each of which computes P and dS anew: one sums dS over the keys of a query, the other P and dS over the
// queries of a key. Nothing is summed in memory, so results do not vary from run to run.
//
// Compiled twice: with SEQUENCES, for sequences of different lengths.
#include "attention_sequences.cuh"

namespace attention {

// What a block of threads does. It owns rows of one side, queries or keys, and walks over the rows of the other 32 at a time:
// lane l of a warp computes S and dP of row l with the rows that the warp owns, and then adds to columns 2l, 2l + 1,
// 2l + 64, ... of their gradients. All lie in shared memory, the others' rows padded by one word so that lanes read different
// banks. Of queries, `x` is Q, `y` is dO; of keys, `x` is K, `y` is V. A gradient of `x` sums dS times the others' `x`, and one
// of `y` (of V alone) P times the others' `y`.
constexpr int OWN = 2, WARPS = 4, OTHERS = 32;

template <typename T, int D, bool OF_KEYS>
__device__ void gradient(const T* q, const T* k, const T* v, const T* output, const T* output_gradient,
                         const float* log_sum_exps, float* deltas, T* x_gradient, T* y_gradient, const Problem& p, int mask) {
  constexpr int PITCH = D + 2;
  __shared__ T x_own[OWN * WARPS * D], y_own[OWN * WARPS * D];
  __shared__ T x_others[OTHERS * PITCH], y_others[OTHERS * PITCH];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int own = OF_KEYS ? p.keys : p.queries, others = OF_KEYS ? p.queries : p.keys;
  int group = OF_KEYS ? p.heads / p.key_heads : 1;  // heads of queries to walk over
  int tiles = (own + OWN * WARPS - 1) / (OWN * WARPS);
  long long total = static_cast<long long>(tiles) * (OF_KEYS ? p.key_heads : p.heads) * p.batch;
  auto range = [&](int row, int& begin, int& end) {
    if (OF_KEYS) seen_from_by_mask(p, mask, row, begin, end);
    else seen_by_mask(p, mask, row, begin, end);
  };
  // A row of `x` and one of `y`, of this side or the other, of a head of queries.
  auto rows = [&](bool keys, int head, int row, const T*& x, const T*& y) {
    x = keys ? row_of_keys(k, p, head, row) : row_of_queries(q, p, head, row);
    y = keys ? row_of_keys(v, p, head, row) : row_of_queries(output_gradient, p, head, row);
  };
  for (long long tile = blockIdx.x; tile < total; tile += gridDim.x) {
    int first_head = tile / tiles * group, first_row = tile % tiles * (OWN * WARPS);
    int last_row = min(first_row + OWN * WARPS, own) - 1;
    __syncthreads();
    for (int i = threadIdx.x; i < OWN * WARPS * D / 2; i += blockDim.x) {
      const T *x, *y;
      rows(OF_KEYS, first_head, min(first_row + i / (D / 2), last_row), x, y);
      reinterpret_cast<uint32_t*>(x_own)[i] = reinterpret_cast<const uint32_t*>(x)[i % (D / 2)];
      reinterpret_cast<uint32_t*>(y_own)[i] = reinterpret_cast<const uint32_t*>(y)[i % (D / 2)];
    }
    __syncthreads();

    int row[OWN], begin[OWN], end[OWN];
    float log[OWN], delta[OWN];  // of the query, which is this row or the lane's
    float2 dx[OWN][D / 64], dy[OWN][D / 64];
#pragma unroll
    for (int r = 0; r < OWN; ++r) {
      row[r] = first_row + warp * OWN + r;
      range(min(row[r], last_row), begin[r], end[r]);
#pragma unroll
      for (int c = 0; c < D / 64; ++c) dx[r][c] = dy[r][c] = {0.0f, 0.0f};
      if (OF_KEYS) continue;
      const T* o = row_of_queries(output, p, first_head, min(row[r], last_row));
      delta[r] = 0.0f;
#pragma unroll
      for (int c = 0; c < D / 64; ++c) {
        float2 a = widen_pair(o + 64 * c + 2 * lane), b = widen_pair(y_own + (warp * OWN + r) * D + 64 * c + 2 * lane);
        delta[r] = fmaf(a.x, b.x, fmaf(a.y, b.y, delta[r]));
      }
      for (int d = 16; d > 0; d /= 2) delta[r] += __shfl_xor_sync(0xffffffff, delta[r], d);
      long long at = static_cast<long long>(first_head) * p.queries + min(row[r], last_row);
      log[r] = log_sum_exps[at];
      if (lane == 0 && row[r] <= last_row) deltas[at] = delta[r];
    }
    int tile_begin, tile_end, unused;
    range(first_row, tile_begin, unused);
    range(last_row, unused, tile_end);

    for (int head = first_head; head < first_head + group; ++head) {
      for (int start = tile_begin; start < tile_end; start += OTHERS) {
        __syncthreads();
        for (int i = threadIdx.x; i < OTHERS * D / 2; i += blockDim.x) {
          const T *x, *y;
          rows(!OF_KEYS, head, min(start + i / (D / 2), others - 1), x, y);
          int at = i / (D / 2) * (PITCH / 2) + i % (D / 2);
          reinterpret_cast<uint32_t*>(x_others)[at] = reinterpret_cast<const uint32_t*>(x)[i % (D / 2)];
          reinterpret_cast<uint32_t*>(y_others)[at] = reinterpret_cast<const uint32_t*>(y)[i % (D / 2)];
        }
        __syncthreads();
        int other = start + lane;
        if (OF_KEYS) {
          long long at = static_cast<long long>(head) * p.queries + min(other, others - 1);
#pragma unroll
          for (int r = 0; r < OWN; ++r) log[r] = log_sum_exps[at], delta[r] = deltas[at];
        }
        float s[OWN] = {}, ds[OWN] = {};
#pragma unroll 8
        for (int i = 0; i < D; i += 2) {
          float2 x = widen_pair(x_others + lane * PITCH + i), y = widen_pair(y_others + lane * PITCH + i);
#pragma unroll
          for (int r = 0; r < OWN; ++r) {
            float2 a = widen_pair(x_own + (warp * OWN + r) * D + i), b = widen_pair(y_own + (warp * OWN + r) * D + i);
            s[r] = fmaf(a.x, x.x, fmaf(a.y, x.y, s[r]));
            ds[r] = fmaf(b.x, y.x, fmaf(b.y, y.y, ds[r]));
          }
        }
#pragma unroll
        for (int r = 0; r < OWN; ++r) {
          bool sees = other >= begin[r] && other < end[r];
          s[r] = sees ? exp2f(fmaf(s[r], p.scale_log2, -log[r] * LOG2_E)) : 0.0f;
          ds[r] = s[r] * (ds[r] - delta[r]);
        }
#pragma unroll 4
        for (int j = 0; j < OTHERS; ++j) {
          float weight[OWN], change[OWN];
#pragma unroll
          for (int r = 0; r < OWN; ++r) {
            change[r] = __shfl_sync(0xffffffff, ds[r], j);
            if (OF_KEYS) weight[r] = __shfl_sync(0xffffffff, s[r], j);
          }
#pragma unroll
          for (int c = 0; c < D / 64; ++c) {
            float2 x = widen_pair(x_others + j * PITCH + 64 * c + 2 * lane);
            float2 y = widen_pair(y_others + j * PITCH + 64 * c + 2 * lane);
#pragma unroll
            for (int r = 0; r < OWN; ++r) {
              dx[r][c] = {fmaf(change[r], x.x, dx[r][c].x), fmaf(change[r], x.y, dx[r][c].y)};
              if (OF_KEYS) dy[r][c] = {fmaf(weight[r], y.x, dy[r][c].x), fmaf(weight[r], y.y, dy[r][c].y)};
            }
          }
        }
      }
    }

#pragma unroll
    for (int r = 0; r < OWN; ++r) {
      if (row[r] > last_row) continue;
      const T* at = OF_KEYS ? row_of_keys(k, p, first_head, row[r]) : row_of_queries(q, p, first_head, row[r]);
      long long offset = at - (OF_KEYS ? k : q) + 2 * lane;  // gradients lie as what they are of
#pragma unroll
      for (int c = 0; c < D / 64; ++c) {
        *reinterpret_cast<uint32_t*>(x_gradient + offset + 64 * c) =
            pack<T>(dx[r][c].x * p.scale, dx[r][c].y * p.scale);
        if (OF_KEYS) *reinterpret_cast<uint32_t*>(y_gradient + offset + 64 * c) = pack<T>(dy[r][c].x, dy[r][c].y);
      }
    }
  }
}

// A block along y takes the sequences, as in attention_portable.cu. `x` and `y` are the gradients' of the side that owns.
template <typename T, int D, bool OF_KEYS>
__device__ void gradient_sequences(const T* q, const T* k, const T* v, const T* output, const T* output_gradient,
                                   const float* log_sum_exps, float* deltas, T* x_gradient, T* y_gradient, const int2* starts,
                                   int sequences, const Problem& p, int mask) {
  for (int i = blockIdx.y; i < sequences; i += gridDim.y) {
    Sequence its = sequence<D>(p, starts, i);
    long long own = OF_KEYS ? its.key : its.query;
    gradient<T, D, OF_KEYS>(q + its.query, k + its.key, v + its.key, OF_KEYS ? nullptr : output + its.query,
                            output_gradient + its.query, log_sum_exps + its.row, deltas + its.row, x_gradient + own,
                            OF_KEYS ? y_gradient + own : nullptr, its.problem, mask);
  }
}

}  // namespace attention

using attention::Problem;

#ifdef SEQUENCES
#define BACKWARD(TYPE, NAME, D)                                                                                         \
  extern "C" __global__ void __launch_bounds__(128) attention_gradient_queries_sequences_##NAME##_d##D(                  \
      const TYPE* q, const TYPE* k, const TYPE* v, const TYPE* output, const TYPE* output_gradient,                      \
      const float* log_sum_exps, float* deltas, TYPE* query_gradient, const int2* starts, int sequences,                 \
      const Problem p, int mask) {                                                                                       \
    attention::gradient_sequences<TYPE, D, false>(q, k, v, output, output_gradient, log_sum_exps, deltas,                \
                                                  query_gradient, nullptr, starts, sequences, p, mask);                  \
  }                                                                                                                      \
  extern "C" __global__ void __launch_bounds__(128) attention_gradient_keys_sequences_##NAME##_d##D(                     \
      const TYPE* q, const TYPE* k, const TYPE* v, const TYPE* output_gradient, const float* log_sum_exps,               \
      float* deltas, TYPE* key_gradient, TYPE* value_gradient, const int2* starts, int sequences, const Problem p,       \
      int mask) {                                                                                                        \
    attention::gradient_sequences<TYPE, D, true>(q, k, v, nullptr, output_gradient, log_sum_exps, deltas,                \
                                                 key_gradient, value_gradient, starts, sequences, p, mask);              \
  }
#else
#define BACKWARD(TYPE, NAME, D)                                                                                          \
  extern "C" __global__ void __launch_bounds__(128) attention_gradient_queries_##NAME##_d##D(                            \
      const TYPE* q, const TYPE* k, const TYPE* v, const TYPE* output, const TYPE* output_gradient,                      \
      const float* log_sum_exps, float* deltas, TYPE* query_gradient, const Problem p, int mask) {                       \
    attention::gradient<TYPE, D, false>(q, k, v, output, output_gradient, log_sum_exps, deltas, query_gradient, nullptr, \
                                        p, mask);                                                                        \
  }                                                                                                                      \
  extern "C" __global__ void __launch_bounds__(128) attention_gradient_keys_##NAME##_d##D(                               \
      const TYPE* q, const TYPE* k, const TYPE* v, const TYPE* output_gradient, const float* log_sum_exps,               \
      float* deltas, TYPE* key_gradient, TYPE* value_gradient, const Problem p, int mask) {                              \
    attention::gradient<TYPE, D, true>(q, k, v, nullptr, output_gradient, log_sum_exps, deltas, key_gradient,            \
                                       value_gradient, p, mask);                                                         \
  }
#endif
#define BACKWARD_DIMS(TYPE, NAME) BACKWARD(TYPE, NAME, 64) BACKWARD(TYPE, NAME, 128) BACKWARD(TYPE, NAME, 256)
BACKWARD_DIMS(__nv_bfloat16, bf16)
BACKWARD_DIMS(__half, f16)
