// Kernels from 2 us to 5 ms whose durations hardly vary, for comparing what is measured of them.
//
//   durations queued|alone|mixed
//
// `queued`: each kernel many times back to back; `alone`: the program waits after each launch; `mixed`: all kernels in
// turn, queued. Each kernel runs in one configuration only, so that a configuration has one duration.
#include <cstdio>
#include <cstring>

#define CHECK(call)                                                     \
  do {                                                                  \
    cudaError_t result_ = (call);                                       \
    if (result_ != cudaSuccess) {                                       \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(result_)); \
      return 1;                                                         \
    }                                                                   \
  } while (0)

// Spins for CYCLES of the multiprocessor's clock.
template <int CYCLES>
__global__ void spin() {
  long long start = clock64();
  while (clock64() - start < CYCLES) {
  }
}

// Moves 16 bytes a thread.
__global__ void copy(float4 *to, const float4 *from) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  to[i] = from[i];
}

// A chain of dependent multiply-adds, on every multiprocessor.
template <int LENGTH>
__global__ void chain(float *x, float factor) {
  float v = x[threadIdx.x];
  for (int i = 0; i < LENGTH; i++) v = v * factor + 0.25f;
  x[threadIdx.x] = v;
}

int main(int argc, char **argv) {
  const char *mode = argc > 1 ? argv[1] : "queued";
  const bool alone = !std::strcmp(mode, "alone"), mixed = !std::strcmp(mode, "mixed");
  const size_t bytes = size_t{1} << 30;
  float4 *to, *from;
  float *x;
  CHECK(cudaMalloc(&to, bytes));
  CHECK(cudaMalloc(&from, bytes));
  CHECK(cudaMalloc(&x, 4096));
  CHECK(cudaMemset(from, 0x3c, bytes));
  CHECK(cudaMemset(x, 0x3c, 4096));

  auto launch = [&](int which) {
    switch (which) {
      case 0: spin<2500><<<1, 32>>>(); break;
      case 1: spin<6000><<<132, 128>>>(); break;
      case 2: spin<18000><<<264, 256>>>(); break;
      case 3: spin<90000><<<132, 1024>>>(); break;
      case 4: spin<900000><<<132, 64>>>(); break;
      case 5: spin<9000000><<<1, 1>>>(); break;
      case 6: copy<<<1024, 256>>>(to, from); break;     // 4 MiB
      case 7: copy<<<8192, 256>>>(to, from); break;     // 32 MiB
      case 8: copy<<<65536, 256>>>(to, from); break;    // 256 MiB
      case 9: copy<<<262144, 256>>>(to, from); break;   // 1 GiB
      case 10: chain<1000><<<528, 256>>>(x, 0.5f); break;
      case 11: chain<20000><<<1056, 512>>>(x, 0.5f); break;
      default: chain<400000><<<132, 128>>>(x, 0.5f); break;
    }
  };
  const int kernels = 13, rounds = 400;
  for (int r = 0; r < (mixed ? rounds : kernels); r++)
    for (int k = 0; k < (mixed ? kernels : rounds); k++) {
      launch(mixed ? k : r);
      if (alone) CHECK(cudaDeviceSynchronize());
    }
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
}
