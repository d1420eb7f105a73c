// Shared by the CUDA programs that verify.py runs. Contract with it:
// results go to standard output as raw bytes (they are hashed); `launches N` on standard error says how many kernels
// the program had executed, where it can know. Inputs are seeded and never zero. Sums are of integers, so that the order
// of additions cannot show.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                                   \
  do {                                                                                                \
    cudaError_t result_ = (call);                                                                     \
    if (result_ != cudaSuccess) {                                                                     \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(result_)); \
      std::exit(1);                                                                                   \
    }                                                                                                 \
  } while (0)

inline std::vector<uint32_t> random_words(size_t n, uint64_t seed) {
  std::vector<uint32_t> words(n);
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (auto &word : words) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    word = static_cast<uint32_t>(state >> 32) | 1;
  }
  return words;
}

// Copies `n` words from the device to standard output.
inline void write_words(const uint32_t *device, size_t n) {
  std::vector<uint32_t> host(n);
  CHECK(cudaMemcpy(host.data(), device, n * sizeof(uint32_t), cudaMemcpyDefault));
  std::fwrite(host.data(), sizeof(uint32_t), n, stdout);
}

inline uint32_t *random_device(size_t n, uint64_t seed) {
  uint32_t *device;
  auto host = random_words(n, seed);
  CHECK(cudaMalloc(&device, n * sizeof(uint32_t)));
  CHECK(cudaMemcpy(device, host.data(), n * sizeof(uint32_t), cudaMemcpyHostToDevice));
  return device;
}

inline void say_launches(long n) { std::fprintf(stderr, "launches %ld\n", n); }

// x <- x * factor + y
__global__ void mix(uint32_t *x, const uint32_t *y, uint32_t factor, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * factor + y[i];
}

// sums[block] <- the sum of the block's part of x
__global__ void block_sums(const uint32_t *x, uint32_t *sums, int n) {
  extern __shared__ uint32_t partial[];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  partial[threadIdx.x] = i < n ? x[i] : 0;
  for (int step = blockDim.x / 2; step > 0; step /= 2) {
    __syncthreads();
    if (threadIdx.x < step) partial[threadIdx.x] += partial[threadIdx.x + step];
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = partial[0];
}
