// What an event pair reads around kernels, by what the stream has to do when the pair is recorded.
//
//   pair_costs MODE REPEATS
//
//   idle      nothing;
//   delayN    a single thread that spins for N us;
//   stream    the same for 150 us, then eight pairs around the same kernel;
//   mixed     the same for 400 us, then a pair around each kernel in turn; mixedrev: in reverse order.
// Prints CSV without a header: mode, kernel, blocks, threads, dynamic shared memory, the quantiles 5, 50 and 95% of the
// readings (ns), and the share of pairs whose first event was still to come when the last one had been recorded. Under
// programs/cupti_count.cpp the same run tells what the kernels take.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <cuda_runtime.h>
#include <functional>
#include <string>
#include <vector>

#define CHECK(call)                                               \
  do {                                                            \
    int result_ = static_cast<int>(call);                         \
    if (result_) {                                                \
      std::fprintf(stderr, "%s: error %d\n", #call, result_);     \
      std::exit(1);                                               \
    }                                                             \
  } while (0)

__global__ void empty() {}
__global__ void empty8(float *, float *, float *, int, int, int, float, float) {}

struct Big {
  char bytes[3900];
};
__global__ void empty_big(Big) {}

// Spins for CYCLES of the multiprocessor's clock.
template <int CYCLES>
__global__ void spin() {
  long long start = clock64();
  while (clock64() - start < CYCLES) {
  }
}

// Moves 16 bytes a thread.
template <int KIB>
__global__ void copy(float4 *to, const float4 *from) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  to[i] = from[i];
}

__global__ void chain(float *x, float factor) {
  float v = x[threadIdx.x];
  for (int i = 0; i < 1000; i++) v = v * factor + 0.25f;
  x[threadIdx.x] = v;
}

__global__ void add8(float *a, float *b, float *c, int n, int m, int k, float f, float g) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i] = b[i] * f + c[i] * g + m + k;
}

__global__ void shared_sum(const float *a, float *sums, int n) {
  extern __shared__ float part[];
  float v = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) v += a[i + blockIdx.x * n];
  part[threadIdx.x] = v;
  __syncthreads();
  for (int width = blockDim.x / 2; width; width /= 2) {
    if (threadIdx.x < width) part[threadIdx.x] += part[threadIdx.x + width];
    __syncthreads();
  }
  if (!threadIdx.x) sums[blockIdx.x] = part[0];
}

// The kernel with which APEX delays a stream.
static const char *delay_ptx =
    ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry apex_delay(.param .u32 cycles)\n{\n.reg .pred %p;\n"
    ".reg .u32 %r<5>;\nld.param.u32 %r1, [cycles];\nmov.u32 %r2, %clock;\nagain:\nmov.u32 %r3, %clock;\n"
    "sub.u32 %r4, %r3, %r2;\nsetp.lt.u32 %p, %r4, %r1;\n@%p bra again;\nret;\n}\n";

constexpr double cycles_per_us = 1980;
constexpr int depth = 8;

static CUfunction delay;
static cudaStream_t stream;

struct Kernel {
  std::string name;
  int blocks, threads, dynamic;
  std::function<void()> launch;
  std::vector<double> readings;
  int queued = 0;
};

static void wait_us(double us) {
  unsigned cycles = us * cycles_per_us;
  void *arguments[] = {&cycles};
  CHECK(cuLaunchKernel(delay, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
}

int main(int argc, char **argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: pair_costs MODE REPEATS\n"), 2;
  const std::string mode = argv[1];
  const int repeats = std::atoi(argv[2]);
  CHECK(cudaFree(nullptr));
  CHECK(cudaStreamCreate(&stream));
  CUmodule module;
  CHECK(cuModuleLoadData(&module, delay_ptx));
  CHECK(cuModuleGetFunction(&delay, module, "apex_delay"));
  float4 *to, *from;
  float *x;
  CHECK(cudaMalloc(&to, 64 << 20));
  CHECK(cudaMalloc(&from, 64 << 20));
  CHECK(cudaMalloc(&x, 1 << 22));
  CHECK(cudaMemset(from, 0, 64 << 20));
  CHECK(cudaMemset(x, 0, 1 << 22));
  CHECK(cudaFuncSetAttribute(shared_sum, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10));

  std::vector<Kernel> kernels;
  static Big big;
  float *sums = x;
  const float *values = reinterpret_cast<const float *>(from);
#define ADD(kernel, blocks, threads, dynamic, ...) \
  kernels.push_back({#kernel, blocks, threads, dynamic, [=] { kernel<<<blocks, threads, dynamic, stream>>>(__VA_ARGS__); }})
  ADD(empty, 1, 1, 0);
  ADD(empty, 1, 32, 0);
  ADD(empty, 132, 256, 0);
  ADD(empty, 1024, 256, 0);
  ADD(empty, 16384, 256, 0);
  ADD(empty8, 1, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  ADD(empty_big, 1, 32, 0, big);
  ADD(spin<500>, 1, 32, 0);
  ADD(spin<1000>, 1, 32, 0);
  ADD(spin<2000>, 1, 32, 0);
  ADD(spin<4000>, 1, 32, 0);
  ADD(spin<8000>, 1, 32, 0);
  ADD(spin<20000>, 1, 32, 0);
  ADD(spin<2000>, 132, 128, 0);
  ADD(spin<6000>, 132, 128, 0);
  ADD(spin<2000>, 1056, 128, 0);
  ADD(spin<20000>, 264, 256, 0);
  ADD(copy<4096>, 1024, 256, 0, to, from);
  ADD(copy<64>, 16, 256, 0, to, from);
  ADD(copy<32768>, 8192, 256, 0, to, from);
  ADD(chain, 528, 256, 0, x, 0.5f);
  ADD(chain, 1, 32, 0, x, 0.5f);
  ADD(add8, 64, 256, 0, x, x + 65536, x + 131072, 16384, 1, 2, 0.5f, 0.25f);
  ADD(add8, 1024, 256, 0, x, x + 262144, x + 524288, 262144, 1, 2, 0.5f, 0.25f);
  ADD(shared_sum, 64, 256, 1024, values, sums, 1024);
  ADD(shared_sum, 64, 256, 102400, values, sums, 1024);
  ADD(shared_sum, 8, 512, 2048, values, sums, 8192);
  const int count = kernels.size();

  std::vector<cudaEvent_t> before(count), after(count);
  for (int i = 0; i < count; i++) {
    CHECK(cudaEventCreate(&before[i]));
    CHECK(cudaEventCreate(&after[i]));
  }
  // The clocks of a device that was idle rise.
  wait_us(50000);
  CHECK(cudaStreamSynchronize(stream));

  // Records a pair around each of these kernels, waits, and keeps the readings.
  auto record = [&](double delay_us, const std::vector<int> &around, bool counts) {
    if (delay_us > 0) wait_us(delay_us);
    for (size_t i = 0; i < around.size(); i++) {
      CHECK(cudaEventRecord(before[i], stream));
      kernels[around[i]].launch();
      CHECK(cudaEventRecord(after[i], stream));
    }
    bool queued = cudaEventQuery(before[0]) == cudaErrorNotReady;
    CHECK(cudaStreamSynchronize(stream));
    for (size_t i = 0; counts && i < around.size(); i++) {
      float ms;
      CHECK(cudaEventElapsedTime(&ms, before[i], after[i]));
      kernels[around[i]].readings.push_back(ms * 1e6);
      kernels[around[i]].queued += queued;
    }
  };
  if (mode == "mixed" || mode == "mixedrev") {
    std::vector<int> order;
    for (int k = 0; k < count; k++) order.push_back(mode == "mixed" ? k : count - 1 - k);
    for (int r = -2; r < repeats; r++) record(400, order, r >= 0);
  } else {
    bool in_stream = mode == "stream";
    double delay_us = in_stream ? 150 : mode.rfind("delay", 0) == 0 ? std::atof(mode.c_str() + 5) : 0;
    for (int k = 0; k < count; k++)
      for (int r = -3; r < repeats; r++) record(delay_us, std::vector<int>(in_stream ? depth : 1, k), r >= 0);
  }
  CHECK(cudaGetLastError());

  for (Kernel &k : kernels) {
    std::sort(k.readings.begin(), k.readings.end());
    auto quantile = [&](double q) { return k.readings[static_cast<size_t>(q * (k.readings.size() - 1))]; };
    std::printf("%s,%s,%d,%d,%d,%.0f,%.0f,%.0f,%.3f\n", mode.c_str(), k.name.c_str(), k.blocks, k.threads, k.dynamic, quantile(0.05),
                quantile(0.5), quantile(0.95), k.queued / static_cast<double>(k.readings.size()));
  }
}
