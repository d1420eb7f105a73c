// What keeps a router in balance, on any GPU from sm_80 on; all forms use it: two losses with their gradients, and the update of
// a bias.
//
//     balance:  experts * sum over experts e of (share of all choices that are e) * (mean of the softmax's e over tokens)
//     z:        mean over tokens of (log of the sum of the logits' exponentials)^2
//
// Shares are taken as given: the gradient of the balance leads through the softmax alone. The sum over experts is taken within
// each token first, which leaves one number of each token to add up. Sums have one order: results are the same in each run.
//
//     bias:     bias of e + rate * sign(mean load - load of e)
#include "moe.cuh"

namespace moe {

// A block for each chunk of tokens, a warp for each of its tokens in turn: adds their gradients to `gradient`, and leaves the
// chunk's sums of both losses in parts[chunk].
__device__ void losses(const float* logits, const int* loads, float balance, float z, float* gradient, float2* parts,
                       const Problem& p) {
  __shared__ float2 of_warps[8];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  float choices = static_cast<float>(p.tokens) * p.top_k;
  float balance_slope = balance * p.experts / p.tokens, z_slope = 2.0f * z / p.tokens;
  for (int chunk = blockIdx.x; chunk < p.chunks; chunk += gridDim.x) {
    float2 sums = {0.0f, 0.0f};
    for (int token = chunk * CHUNK + warp; token < min((chunk + 1) * CHUNK, p.tokens); token += warps) {
      const float* row = logits + static_cast<long long>(token) * p.experts;
      float top = -INFINITY, all = 0.0f, shared = 0.0f;
      for (int e = lane; e < p.experts; e += 32) top = fmaxf(top, row[e]);
      for (int d = 16; d > 0; d /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, d));
      for (int e = lane; e < p.experts; e += 32) {
        float weight = expf(row[e] - top);
        all += weight;
        shared += weight * (loads[e] / choices);
      }
      all = warp_sum(all);
      shared = warp_sum(shared) / all;
      float log_sum = top + logf(all);
      float* to = gradient + static_cast<long long>(token) * p.experts;
      for (int e = lane; e < p.experts; e += 32)
        to[e] += expf(row[e] - top) / all * (balance_slope * (loads[e] / choices - shared) + z_slope * log_sum);
      sums.x += shared;
      sums.y += log_sum * log_sum;
    }
    if (lane == 0) of_warps[warp] = sums;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int i = 1; i < warps; ++i) sums.x += of_warps[i].x, sums.y += of_warps[i].y;
      parts[chunk] = sums;
    }
    __syncthreads();
  }
}

// One warp adds up the parts: both losses.
__device__ void sum_losses(const float2* parts, float* losses, const Problem& p) {
  float2 sums = {0.0f, 0.0f};
  for (int chunk = threadIdx.x; chunk < p.chunks; chunk += 32) sums.x += parts[chunk].x, sums.y += parts[chunk].y;
  sums = {warp_sum(sums.x), warp_sum(sums.y)};
  if (threadIdx.x == 0) losses[0] = sums.x * p.experts / p.tokens, losses[1] = sums.y / p.tokens;
}

// One block: raises the bias of experts that have less than the mean load by `rate`, and lowers it of those that have more.
// Loads and their sum are compared as integers.
__device__ void balance_bias(float* bias, const unsigned* loads, float rate, int experts) {
  __shared__ unsigned long long total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  unsigned long long sum = 0;
  for (int e = threadIdx.x; e < experts; e += blockDim.x) sum += loads[e];
  atomicAdd(&total, sum);
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += blockDim.x) {
    unsigned long long scaled = static_cast<unsigned long long>(loads[e]) * experts;
    if (scaled != total) bias[e] += scaled < total ? rate : -rate;
  }
}

}  // namespace moe

extern "C" __global__ void __launch_bounds__(256) moe_losses(const float* logits, const int* loads, float balance, float z,
                                                             float* gradient, float2* parts, const moe::Problem p) {
  moe::losses(logits, loads, balance, z, gradient, parts, p);
}
extern "C" __global__ void __launch_bounds__(32) moe_sum_losses(const float2* parts, float* losses, const moe::Problem p) {
  moe::sum_losses(parts, losses, p);
}
extern "C" __global__ void __launch_bounds__(256) moe_balance_bias(float* bias, const unsigned* loads, float rate, int experts) {
  moe::balance_bias(bias, loads, rate, experts);
}
