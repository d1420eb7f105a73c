// What an L2 persistence window gains: l2_window ROUNDS
//
// A step reads a buffer that every step reads (`hot`), then reads and writes a part of a larger one (`passed`), so that what comes
// back is evicted or not. Each pair of sizes is timed without a window and with one over the hot buffer, in turn: GPU time of a
// step, microseconds, medians over ROUNDS. Each line of the output is a JSON object.
#include "statistics.h"
#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                                      \
  do {                                                                                                   \
    cudaError_t result_ = (call);                                                                        \
    if (result_ != cudaSuccess) {                                                                        \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(result_));        \
      exit(1);                                                                                           \
    }                                                                                                    \
  } while (0)

__global__ void read(const uint4 *from, size_t count, unsigned *to) {
  unsigned sum = 0;
  for (size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x; at < count; at += (size_t)gridDim.x * blockDim.x) {
    uint4 value = from[at];
    sum ^= value.x ^ value.y ^ value.z ^ value.w;
  }
  if (sum == 1) *to = sum;
}

__global__ void pass(uint4 *over, size_t count) {
  for (size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x; at < count; at += (size_t)gridDim.x * blockDim.x) {
    uint4 value = over[at];
    value.x += 1;
    over[at] = value;
  }
}

enum { STEPS = 50 };
static const size_t MIB = 1 << 20;

static double step_us(cudaStream_t stream, uint4 *hot, size_t hot_bytes, char *passed, size_t passed_bytes, size_t passed_all, unsigned *to) {
  cudaEvent_t begun, ended;
  CHECK(cudaEventCreate(&begun));
  CHECK(cudaEventCreate(&ended));
  size_t at = 0;
  for (int step = -5; step < STEPS; step++) {
    if (step == 0) CHECK(cudaEventRecord(begun, stream));
    read<<<264, 512, 0, stream>>>(hot, hot_bytes / 16, to);
    if (passed_bytes) pass<<<264, 512, 0, stream>>>((uint4 *)(passed + at), passed_bytes / 16);
    at = (at + passed_bytes) % passed_all;
  }
  CHECK(cudaEventRecord(ended, stream));
  CHECK(cudaEventSynchronize(ended));
  float ms;
  CHECK(cudaEventElapsedTime(&ms, begun, ended));
  CHECK(cudaEventDestroy(begun));
  CHECK(cudaEventDestroy(ended));
  return ms * 1e3 / STEPS;
}

int main(int, char **arguments) {
  enum { MOST = 100 };
  int rounds = atoi(arguments[1]);
  if (rounds < 1 || rounds > MOST) return 2;
  cudaDeviceProp device;
  CHECK(cudaGetDeviceProperties(&device, 0));
  cudaStream_t plain, windowed;
  CHECK(cudaStreamCreate(&plain));
  CHECK(cudaStreamCreate(&windowed));
  const size_t hot_most = 64 * MIB, passed_all = 1024 * MIB;
  char *hot, *passed;
  unsigned *to;
  CHECK(cudaMalloc(&hot, hot_most));
  CHECK(cudaMalloc(&passed, passed_all));
  CHECK(cudaMalloc(&to, sizeof *to));
  printf("{\"l2_bytes\": %d, \"persisting_bytes\": %d, \"largest_window\": %d}\n", device.l2CacheSize, device.persistingL2CacheMaxSize,
         device.accessPolicyMaxWindowSize);
  for (size_t hot_mib : {4, 8, 16, 24, 32, 48}) {
    for (size_t passed_mib : {0, 8, 32, 64, 128}) {
      size_t hot_bytes = hot_mib * MIB, passed_bytes = passed_mib * MIB;
      double without[MOST], with[MOST];
      for (int round = 0; round < rounds; round++) {
        CHECK(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 0));
        without[round] = step_us(plain, (uint4 *)hot, hot_bytes, passed, passed_bytes, passed_all, to);
        CHECK(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, device.persistingL2CacheMaxSize));
        cudaStreamAttrValue value = {};
        value.accessPolicyWindow.base_ptr = hot;
        value.accessPolicyWindow.num_bytes = hot_bytes;
        value.accessPolicyWindow.hitRatio = hot_bytes > (size_t)device.persistingL2CacheMaxSize ? device.persistingL2CacheMaxSize / (float)hot_bytes : 1;
        value.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
        value.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
        CHECK(cudaStreamSetAttribute(windowed, cudaStreamAttributeAccessPolicyWindow, &value));
        with[round] = step_us(windowed, (uint4 *)hot, hot_bytes, passed, passed_bytes, passed_all, to);
        CHECK(cudaCtxResetPersistingL2Cache());
      }
      printf("{\"hot_mib\": %zu, \"passed_mib\": %zu, \"without_us\": %.2f, \"with_us\": %.2f}\n", hot_mib, passed_mib,
             quantile(sorted(without, rounds), 0.5), quantile(sorted(with, rounds), 0.5));
      fflush(stdout);
    }
  }
}
