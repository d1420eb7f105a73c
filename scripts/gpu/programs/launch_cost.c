// What one cuLaunchKernel costs on the CPU, through the linked symbol and, in turns with it, at the real driver's address.
//
//   launch_cost CUBIN LIBCUDA ARGUMENTS CALLS        (CUBIN: kernels.cu; ARGUMENTS: 0 or 8)
//
// Under `apex run` the linked symbol is APEX's and the other is the bare driver, in the same process, context and
// stream: their difference is what APEX adds, free of what differs between two processes. Without APEX both are the same
// function and the difference is the method's own error. CALLS calls of each are timed one by one, in turns of 50, at
// most 500 queued; the synchronisation between is not timed. Prints CSV, one row for each 10,000 calls of each path.
#define _GNU_SOURCE
#include "driver.h"
#include <dlfcn.h>

#define SEGMENT 10000
#define BATCH 500
#define TURN 50

typedef CUresult (*LaunchKernel)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                                 void **, void **);

int main(int argc, char **argv) {
  if (argc != 5) return fprintf(stderr, "usage: launch_cost CUBIN LIBCUDA ARGUMENTS CALLS\n"), 2;
  int with_arguments = atoi(argv[3]) > 0;
  long segments = atol(argv[4]) / SEGMENT;
  CUcontext context;
  CUmodule module;
  CUfunction f;
  CUstream stream;
  first_device(&context);
  CHECK(cuModuleLoad(&module, argv[1]));
  CHECK(cuModuleGetFunction(&f, module, with_arguments ? "empty8" : "empty"));
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  void *library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
  LaunchKernel path[2] = {cuLaunchKernel, library ? (LaunchKernel)dlsym(library, "cuLaunchKernel") : NULL};
  if (!path[1]) return fprintf(stderr, "launch_cost: %s\n", dlerror()), 1;
  float *p = NULL, x = 0;
  int i = 0;
  void *eight[] = {&p, &p, &p, &i, &i, &i, &x, &x}, **arguments = with_arguments ? eight : NULL;

  double tick = ns_per_tick();
  static double sample[2][SEGMENT];
  printf("path,segment,p50_ns,p90_ns,p99_ns,mean_ns\n");
  for (long s = -1; s < segments; s++) {  // segment -1 warms up
    int done = 0;
    while (done < SEGMENT) {
      CHECK(cuStreamSynchronize(stream));
      for (int turn = 0; turn < BATCH / TURN / 2; turn++, done += TURN) {
        for (int k = 0; k < 2; k++) {
          int which = (k + turn) % 2;
          for (int c = 0; c < TURN; c++) {
            uint64_t begin = ticks();
            CUresult result = path[which](f, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
            sample[which][done + c] = (double)(ticks() - begin) * tick;
            if (result != CUDA_SUCCESS) return fprintf(stderr, "launch_cost: launch failed: %d\n", result), 1;
          }
        }
      }
    }
    for (int which = 0; which < 2 && s >= 0; which++) {
      Sorted calls = sorted(sample[which], SEGMENT);
      printf("%s,%ld,%.2f,%.2f,%.2f,%.2f\n", which ? "direct" : "linked", s, quantile(calls, 0.5), quantile(calls, 0.9),
             quantile(calls, 0.99), mean(calls));
    }
  }
  CHECK(cuStreamSynchronize(stream));
  return 0;
}
