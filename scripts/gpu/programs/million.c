// A million empty launches in a row, each timed alone.
//
//   million CUBIN [LAUNCHES]      (CUBIN: kernels.cu)
//
// Prints JSON: quantiles and mean of the launch calls in nanoseconds, less what two readings of the counter take; and the
// nanoseconds of a launch from the first call to the end of the last kernel.
#include "driver.h"

int main(int argc, char **argv) {
  if (argc < 2) return fprintf(stderr, "usage: million CUBIN [LAUNCHES]\n"), 2;
  long launches = argc > 2 ? atol(argv[2]) : 1000000;
  CUcontext context;
  CUmodule module;
  CUfunction f;
  CUstream stream;
  first_device(&context);
  CHECK(cuModuleLoad(&module, argv[1]));
  CHECK(cuModuleGetFunction(&f, module, "empty"));
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  double *sample = malloc((size_t)launches * sizeof *sample);
  if (!sample) return fprintf(stderr, "million: out of memory\n"), 1;
  memset(sample, 0, (size_t)launches * sizeof *sample);

  double tick = ns_per_tick();
  for (int i = 0; i < 1000; i++) {
    uint64_t begin = ticks();
    sample[i] = (double)(ticks() - begin);
  }
  double own = quantile(sorted(sample, 1000), 0.5);
  for (int i = 0; i < 2000; i++) CHECK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
  CHECK(cuStreamSynchronize(stream));

  double began = monotonic_ns();
  for (long i = 0; i < launches; i++) {
    uint64_t begin = ticks();
    CUresult result = cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
    sample[i] = (double)(ticks() - begin);
    if (result != CUDA_SUCCESS) return fprintf(stderr, "million: launch failed: %d\n", result), 1;
  }
  CHECK(cuStreamSynchronize(stream));
  double total = monotonic_ns() - began;
  for (long i = 0; i < launches; i++) sample[i] = sample[i] > own ? (sample[i] - own) * tick : 0;
  Sorted calls = sorted(sample, (size_t)launches);
  printf("{\"p50_ns\": %.1f, \"p90_ns\": %.1f, \"p99_ns\": %.1f, \"mean_ns\": %.1f, \"total_ns_per_launch\": %.1f}\n",
         quantile(calls, 0.5), quantile(calls, 0.9), quantile(calls, 0.99), mean(calls), total / (double)launches);
  return 0;
}
