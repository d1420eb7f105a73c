// What the ways to route have in common, tokens that choose experts and experts that choose tokens: scores and their order, sums
// over a block, and the sum of a token's rows.
#pragma once
#include "moe.cuh"

namespace moe {

__device__ __forceinline__ float logistic(float x) { return 1.0f / (1.0f + expf(-x)); }

__device__ __forceinline__ float warp_max(float x) {
  for (int d = 16; d > 0; d /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, d));
  return x;
}

// A number that orders as `score` does, NaN as minus infinity. Greater than 0, which stands for an expert that is taken.
__device__ __forceinline__ unsigned rank_of(float score) {
  unsigned bits = __float_as_uint(score != score ? -INFINITY : score);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The sum of `value` over the threads of the block before this one; `all` is that over all. Every thread of a block of THREADS
// threads calls it.
constexpr int SCAN = 256;
template <int THREADS>
__device__ __forceinline__ int sum_before(int value, int& all) {
  __shared__ int sums[THREADS / 32];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, sum = value;
  for (int d = 1; d < 32; d *= 2) {
    int other = __shfl_up_sync(0xffffffff, sum, d);
    if (lane >= d) sum += other;
  }
  if (lane == 31) sums[warp] = sum;
  __syncthreads();
  int before = sum - value;
  all = 0;
  for (int i = 0; i < THREADS / 32; ++i) {
    if (i < warp) before += sums[i];
    all += sums[i];
  }
  __syncthreads();
  return before;
}

// A block adds up `count` rows in their order, row i with `weight(i)`. Those below 0 add nothing.
template <typename T, class Weight>
__device__ __forceinline__ void add_rows(const T* rows, const int* its_rows, int count, Weight weight, T* to, int dim) {
  if (dim % 8 == 0) {
    for (int i = threadIdx.x; i < dim / 8; i += blockDim.x) {
      float sums[8] = {};
#pragma unroll 4
      for (int c = 0; c < count; ++c) {
        long long row = its_rows[c];
        uint4 words = {};
        if (row >= 0) words = __ldg(reinterpret_cast<const uint4*>(rows + row * dim) + i);
        float its_weight = row >= 0 ? weight(c) : 0.0f;
        uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          float2 pair = unpack<T>(pairs[j]);
          sums[2 * j] = fmaf(its_weight, pair.x, sums[2 * j]);
          sums[2 * j + 1] = fmaf(its_weight, pair.y, sums[2 * j + 1]);
        }
      }
      reinterpret_cast<uint4*>(to)[i] = make_uint4(pack<T>(sums[0], sums[1]), pack<T>(sums[2], sums[3]),
                                                   pack<T>(sums[4], sums[5]), pack<T>(sums[6], sums[7]));
    }
  } else {
    for (int i = threadIdx.x; i < dim; i += blockDim.x) {
      float sum = 0.0f;
      for (int c = 0; c < count; ++c) {
        long long row = its_rows[c];
        if (row >= 0) sum = fmaf(weight(c), widen(rows[row * dim + i]), sum);
      }
      to[i] = narrow<T>(sum);
    }
  }
}

}  // namespace moe
