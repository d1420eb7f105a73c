// What single driver calls cost on the CPU: median and 99th percentile over many calls, each timed alone.
//
//   call_costs CUBIN          (CUBIN: kernels.cu)
//
// Prints CSV. The first row is the timing itself (two reads of the time-stamp counter with fences); it is contained in
// every other row. Calls that queue work are timed in batches, with a synchronisation outside the timed part between.
#define _GNU_SOURCE
#include "driver.h"
#include <sys/syscall.h>
#include <unistd.h>

#define SAMPLES 20000
#define BATCH 200

static double tick, sample[SAMPLES];

static void report(const char *what) {
  for (int i = 0; i < SAMPLES; i++) sample[i] *= tick;
  Sorted calls = sorted(sample, SAMPLES);
  printf("%s,%.1f,%.1f,%d\n", what, quantile(calls, 0.5), quantile(calls, 0.99), SAMPLES);
  fflush(stdout);
}

// Times CALL alone SAMPLES times; BETWEEN runs untimed before every batch.
#define COST(what, between, call)            \
  do {                                       \
    for (int i = 0; i < SAMPLES; i++) {      \
      if (i % BATCH == 0) { between; }       \
      uint64_t begin_ = ticks();             \
      call;                                  \
      sample[i] = (double)(ticks() - begin_); \
    }                                        \
    report(what);                            \
  } while (0)

int main(int argc, char **argv) {
  if (argc != 2) return fprintf(stderr, "usage: call_costs CUBIN\n"), 2;
  CUcontext context, c;
  CUdevice device = first_device(&context), d;
  CUmodule module, m;
  CUlibrary library;
  CUfunction empty, empty8, spin, f;
  CUkernel kernel;
  CUstream stream, busy;
  CUevent done, pending, first, second, e;
  CUdeviceptr memory;
  void *pinned, *pageable = malloc(1 << 20);
  CHECK(cuModuleLoad(&module, argv[1]));
  CHECK(cuModuleGetFunction(&empty, module, "empty"));
  CHECK(cuModuleGetFunction(&empty8, module, "empty8"));
  CHECK(cuModuleGetFunction(&spin, module, "spin"));
  CHECK(cuLibraryLoadFromFile(&library, argv[1], NULL, NULL, 0, NULL, NULL, 0));
  CHECK(cuLibraryGetKernel(&kernel, library, "empty"));
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING));
  CHECK(cuEventCreate(&done, CU_EVENT_DEFAULT));
  CHECK(cuEventCreate(&pending, CU_EVENT_DEFAULT));
  CHECK(cuEventCreate(&first, CU_EVENT_DEFAULT));
  CHECK(cuEventCreate(&second, CU_EVENT_DEFAULT));
  CHECK(cuMemAlloc(&memory, 1 << 20));
  CHECK(cuMemAllocHost(&pinned, 1 << 20));
  CHECK(cuEventRecord(first, stream));
  CHECK(cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
  CHECK(cuEventRecord(second, stream));
  CHECK(cuEventRecord(done, stream));
  CHECK(cuCtxSynchronize());

  tick = ns_per_tick();
  struct timespec t;
  int value;
  unsigned flags;
  unsigned long long id;
  float ms;
  const char *name;
  CUstreamCaptureStatus status;
  CUmemorytype type;
  size_t free_bytes, total;
  long long cycles = 0, *elapsed = NULL;
  void *spin_arguments[] = {&cycles, &elapsed};
  float *p = NULL, x = 0;
  void *arguments[] = {&p, &p, &p, &value, &value, &value, &x, &x};
  value = 1;

  printf("call,median_ns,p99_ns,samples\n");
  COST("(the timing itself)", , );
  COST("rdtsc", , (void)__rdtsc());
  COST("clock_gettime(CLOCK_MONOTONIC)", , clock_gettime(CLOCK_MONOTONIC, &t));
  COST("gettid (system call)", , syscall(SYS_gettid));
  COST("cuCtxGetCurrent", , cuCtxGetCurrent(&c));
  COST("cuCtxGetDevice", , cuCtxGetDevice(&d));
  COST("cuCtxGetId", , cuCtxGetId(context, &id));
  COST("cuStreamIsCapturing", , cuStreamIsCapturing(stream, &status));
  COST("cuStreamIsCapturing (null stream)", , cuStreamIsCapturing(NULL, &status));
  COST("cuStreamGetCtx", , cuStreamGetCtx(stream, &c));
  COST("cuStreamGetId", , cuStreamGetId(stream, &id));
  COST("cuStreamGetFlags", , cuStreamGetFlags(stream, &flags));
  COST("cuStreamQuery (idle)", , cuStreamQuery(stream));
  COST("cuEventQuery (done)", , cuEventQuery(done));
  COST("cuEventElapsedTime", , cuEventElapsedTime(&ms, first, second));
  COST("cuEventRecord (idle stream)", CHECK(cuStreamSynchronize(stream)), cuEventRecord(done, stream));
  COST("cuPointerGetAttribute(MEMORY_TYPE) pageable", , cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)pageable));
  COST("cuPointerGetAttribute(MEMORY_TYPE) pinned", , cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)pinned));
  COST("cuPointerGetAttribute(MEMORY_TYPE) device", , cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
  COST("cuFuncGetAttribute(NUM_REGS)", , cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, empty));
  COST("cuKernelGetAttribute(NUM_REGS)", , cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, device));
  COST("cuFuncGetName", , cuFuncGetName(&name, empty));
  COST("cuKernelGetName", , cuKernelGetName(&name, kernel));
  COST("cuKernelGetFunction", , cuKernelGetFunction(&f, kernel));
  COST("cuFuncGetModule", , cuFuncGetModule(&m, empty));
  COST("cuDeviceGetAttribute", , cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device));
  COST("cuMemGetInfo", , cuMemGetInfo(&free_bytes, &total));
  COST("cuEventCreate + cuEventDestroy", , (cuEventCreate(&e, CU_EVENT_DEFAULT), cuEventDestroy(e)));
  COST("cuStreamSynchronize (idle)", , cuStreamSynchronize(stream));
  COST("cuLaunchKernel, no arguments", CHECK(cuStreamSynchronize(stream)), cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
  COST("cuLaunchKernel, 8 arguments", CHECK(cuStreamSynchronize(stream)), cuLaunchKernel(empty8, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
  COST("cuLaunchKernel, CUkernel handle", CHECK(cuStreamSynchronize(stream)), cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
  COST("cuEventRecord + cuLaunchKernel + cuEventRecord", CHECK(cuStreamSynchronize(stream)),
       (cuEventRecord(first, stream), cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), cuEventRecord(second, stream)));

  // With work of about half a second ahead of it in the stream, renewed before every batch.
  cycles = 20 * 1000 * 1000;
#define OCCUPY(n)                                                                                     \
  CHECK(cuStreamSynchronize(busy));                                                                   \
  for (int k_ = 0; k_ < (n); k_++) CHECK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, busy, spin_arguments, NULL)); \
  CHECK(cuEventRecord(pending, busy))
  COST("cuStreamQuery (busy)", OCCUPY(1), cuStreamQuery(busy));
  COST("cuEventQuery (pending)", OCCUPY(1), cuEventQuery(pending));
  COST("cuEventRecord (busy stream)", OCCUPY(1), cuEventRecord(done, busy));
  COST("cuLaunchKernel, no arguments (busy stream)", OCCUPY(1), cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, busy, NULL, NULL));
  CHECK(cuCtxSynchronize());
  return 0;
}
