// What actions on memory would gain for a kernel whose access sets are known: memory_actions ROUNDS
//
// `managed`: in each step the host writes a managed buffer, a kernel reads it and writes another one, and the host reads that;
// without an action, with a prefetch to the device of what the kernel reads, and with one of what it writes besides.
// `window`: each step reads the same buffer, then reads and writes a part of a larger one; without an L2 access policy window,
// and with one over the buffer for the kernel that reads it, for which as much of the L2 is set aside as the buffer has.
// Each line of the output is a JSON object: µs of a step, medians of rounds in which the ways take turns.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                                      \
  do {                                                                                                   \
    cudaError_t result_ = (call);                                                                        \
    if (result_ != cudaSuccess) {                                                                        \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(result_));        \
      exit(1);                                                                                           \
    }                                                                                                    \
  } while (0)

static const size_t MIB = 1 << 20;

__global__ void add(float *to, const float *from, size_t count) {
  for (size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x; at < count; at += (size_t)gridDim.x * blockDim.x)
    to[at] = from[at] + 1;
}

__global__ void read(const uint4 *from, size_t count, unsigned *to) {
  unsigned sum = 0;
  for (size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x; at < count; at += (size_t)gridDim.x * blockDim.x) {
    uint4 value = from[at];
    sum ^= value.x ^ value.y ^ value.z ^ value.w;
  }
  if (sum == 1) *to = sum;
}

static double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

static void prefetch(const void *what, size_t bytes, bool to_device, cudaStream_t stream) {
  cudaMemLocation where = {};
  where.type = to_device ? cudaMemLocationTypeDevice : cudaMemLocationTypeHost;
  CHECK(cudaMemPrefetchAsync(what, bytes, where, 0, stream));
}

// `way`: 0 without, 1 prefetches what is read, 2 what is written besides.
static double managed_step(int way, float *to, float *from, size_t bytes, cudaStream_t stream, float value) {
  size_t count = bytes / sizeof(float);
  double begun = now_us();
  for (size_t at = 0; at < count; at++) from[at] = value;
  if (way > 0) prefetch(from, bytes, true, stream);
  if (way > 1) prefetch(to, bytes, true, stream);
  add<<<264, 512, 0, stream>>>(to, from, count);
  CHECK(cudaStreamSynchronize(stream));
  for (size_t at = 0; at < count; at++)
    if (to[at] != value + 1) {
      fprintf(stderr, "wrong at %zu\n", at);
      exit(1);
    }
  return now_us() - begun;
}

static void managed(int rounds, size_t bytes, cudaStream_t stream) {
  float *to, *from;
  CHECK(cudaMallocManaged(&to, bytes));
  CHECK(cudaMallocManaged(&from, bytes));
  std::vector<double> times[3];
  for (int round = -2; round < rounds; round++)
    for (int turn = 0; turn < 3; turn++) {
      int way = round % 2 ? 2 - turn : turn;
      double us = managed_step(way, to, from, bytes, stream, (float)(round + 3 * turn));
      if (round >= 0) times[way].push_back(us);
    }
  printf("{\"what\": \"managed\", \"mib\": %zu, \"none_us\": %.1f, \"read_us\": %.1f, \"both_us\": %.1f}\n", bytes / MIB,
         median(times[0]), median(times[1]), median(times[2]));
  fflush(stdout);
  CHECK(cudaFree(to));
  CHECK(cudaFree(from));
}

static void set_window(cudaStream_t stream, void *from, size_t bytes) {
  cudaStreamAttrValue value = {};
  value.accessPolicyWindow.base_ptr = from;
  value.accessPolicyWindow.num_bytes = bytes;
  value.accessPolicyWindow.hitRatio = 1;
  value.accessPolicyWindow.hitProp = bytes ? cudaAccessPropertyPersisting : cudaAccessPropertyNormal;
  value.accessPolicyWindow.missProp = cudaAccessPropertyNormal;
  CHECK(cudaStreamSetAttribute(stream, cudaStreamAttributeAccessPolicyWindow, &value));
}

static double window_step(bool has_window, uint4 *hot, size_t bytes, float *passed, size_t passed_bytes, unsigned *to, cudaStream_t stream) {
  enum { STEPS = 50 };
  CHECK(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, has_window ? bytes : 0));
  cudaEvent_t begun, ended;
  CHECK(cudaEventCreate(&begun));
  CHECK(cudaEventCreate(&ended));
  for (int step = -5; step < STEPS; step++) {
    if (step == 0) CHECK(cudaEventRecord(begun, stream));
    if (has_window) set_window(stream, hot, bytes);
    read<<<264, 512, 0, stream>>>(hot, bytes / sizeof(uint4), to);
    if (has_window) set_window(stream, nullptr, 0);
    add<<<264, 512, 0, stream>>>(passed, passed, passed_bytes / sizeof(float));
  }
  CHECK(cudaEventRecord(ended, stream));
  CHECK(cudaEventSynchronize(ended));
  float ms;
  CHECK(cudaEventElapsedTime(&ms, begun, ended));
  CHECK(cudaEventDestroy(begun));
  CHECK(cudaEventDestroy(ended));
  CHECK(cudaCtxResetPersistingL2Cache());
  return ms * 1e3 / STEPS;
}

static void window(int rounds, size_t bytes, size_t passed_bytes, cudaStream_t stream) {
  void *hot, *passed;
  unsigned *to;
  CHECK(cudaMalloc(&hot, bytes));
  CHECK(cudaMalloc(&passed, passed_bytes));
  CHECK(cudaMalloc(&to, sizeof *to));
  CHECK(cudaMemset(hot, 3, bytes));
  CHECK(cudaMemset(passed, 0, passed_bytes));
  std::vector<double> times[2];
  for (int round = -1; round < rounds; round++)
    for (int turn = 0; turn < 2; turn++) {
      int way = round % 2 ? 1 - turn : turn;
      double us = window_step(way, (uint4 *)hot, bytes, (float *)passed, passed_bytes, to, stream);
      if (round >= 0) times[way].push_back(us);
    }
  printf("{\"what\": \"window\", \"mib\": %zu, \"passed_mib\": %zu, \"none_us\": %.1f, \"window_us\": %.1f}\n", bytes / MIB,
         passed_bytes / MIB, median(times[0]), median(times[1]));
  fflush(stdout);
  CHECK(cudaFree(hot));
  CHECK(cudaFree(passed));
  CHECK(cudaFree(to));
}

int main(int, char **arguments) {
  int rounds = arguments[1] ? atoi(arguments[1]) : 5;
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (size_t mib : {1, 4, 16, 64}) managed(rounds, mib * MIB, stream);
  for (size_t mib : {2, 8, 16})
    for (size_t passed : {8, 32, 128}) window(rounds, mib * MIB, passed * MIB, stream);
}
