// Which questions to the driver end a capture? Each is asked once on a stream that is being captured, of a kernel that was
// never launched and so is not loaded yet, with the thread in its ordinary capture mode and in the relaxed one. Prints
// question, mode, the driver's answer and the capture's state afterwards.
//
//   captures CUBIN      # a cubin with the kernel `spin` (kernels.cu)
#include "driver.h"

static CUcontext context;
static CUstream stream;
static CUkernel kernel;
static CUfunction function;
static CUdevice device;
static CUdeviceptr memory;
static void *host;

#define QUESTION(name, call)                                                                                                   \
  static CUresult name(void) {                                                                                                 \
    CUcontext c; CUfunction f; unsigned u; int i; size_t s; const char *text; CUstreamCaptureStatus status;                    \
    (void)c, (void)f, (void)u, (void)i, (void)s, (void)text, (void)status;                                                     \
    return call;                                                                                                               \
  }

QUESTION(nothing, CUDA_SUCCESS)
QUESTION(ctx_get_current, cuCtxGetCurrent(&c))
QUESTION(ctx_get_device, cuCtxGetDevice(&i))
QUESTION(stream_is_capturing, cuStreamIsCapturing(stream, &status))
QUESTION(legacy_is_capturing, cuStreamIsCapturing(NULL, &status))
QUESTION(stream_get_flags, cuStreamGetFlags(stream, &u))
QUESTION(stream_get_ctx, cuStreamGetCtx(stream, &c))
QUESTION(kernel_get_function, cuKernelGetFunction(&f, kernel))
QUESTION(kernel_get_name, cuKernelGetName(&text, kernel))
QUESTION(kernel_get_attribute, cuKernelGetAttribute(&i, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, device))
QUESTION(func_get_attribute, cuFuncGetAttribute(&i, CU_FUNC_ATTRIBUTE_NUM_REGS, function))
QUESTION(func_get_attribute_of_kernel, cuFuncGetAttribute(&i, CU_FUNC_ATTRIBUTE_NUM_REGS, (CUfunction)kernel))
QUESTION(func_get_name, cuFuncGetName(&text, function))
QUESTION(func_get_name_of_kernel, cuFuncGetName(&text, (CUfunction)kernel))
QUESTION(device_get_attribute, cuDeviceGetAttribute(&i, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device))
QUESTION(device_total_mem, cuDeviceTotalMem(&s, device))
QUESTION(pointer_type, cuPointerGetAttribute(&u, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory))
QUESTION(pointer_type_pageable, cuPointerGetAttribute(&u, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)host))
QUESTION(stream_query, cuStreamQuery(stream))

static const struct { const char *name; CUresult (*ask)(void); } questions[] = {
  {"nothing", nothing}, {"cuCtxGetCurrent", ctx_get_current}, {"cuCtxGetDevice", ctx_get_device},
  {"cuStreamIsCapturing", stream_is_capturing}, {"cuStreamIsCapturing (legacy)", legacy_is_capturing},
  {"cuStreamGetFlags", stream_get_flags}, {"cuStreamGetCtx", stream_get_ctx},
  {"cuKernelGetFunction", kernel_get_function}, {"cuKernelGetName", kernel_get_name},
  {"cuKernelGetAttribute", kernel_get_attribute}, {"cuFuncGetAttribute", func_get_attribute},
  {"cuFuncGetAttribute of a CUkernel", func_get_attribute_of_kernel}, {"cuFuncGetName", func_get_name},
  {"cuFuncGetName of a CUkernel", func_get_name_of_kernel}, {"cuDeviceGetAttribute", device_get_attribute},
  {"cuDeviceTotalMem", device_total_mem}, {"cuPointerGetAttribute device", pointer_type},
  {"cuPointerGetAttribute pageable", pointer_type_pageable}, {"cuStreamQuery", stream_query},
};

static const char *text_of(CUresult code) {
  const char *name = "?";
  cuGetErrorName(code, &name);
  return name;
}

int main(int argc, char **argv) {
  if (argc != 2) return fprintf(stderr, "usage: captures CUBIN\n"), 2;
  device = first_device(&context);
  host = malloc(4096);
  CHECK(cuMemAlloc(&memory, 4096));
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  printf("question,thread's mode,answer,capture afterwards,end of capture\n");
  for (size_t q = 0; q < sizeof questions / sizeof *questions; q++) {
    for (int relaxed = 0; relaxed < 2; relaxed++) {
      CUlibrary library;
      CUmodule module;
      CHECK(cuLibraryLoadFromFile(&library, argv[1], NULL, NULL, 0, NULL, NULL, 0));
      CHECK(cuModuleLoad(&module, argv[1]));
      CHECK(cuLibraryGetKernel(&kernel, library, "spin"));
      CHECK(cuModuleGetFunction(&function, module, "spin"));
      CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
      CUstreamCaptureStatus status;
      CUgraph graph = NULL;
      CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
      if (relaxed) CHECK(cuThreadExchangeStreamCaptureMode(&mode));
      CUresult answer = questions[q].ask();
      if (relaxed) CHECK(cuThreadExchangeStreamCaptureMode(&mode));
      CHECK(cuStreamIsCapturing(stream, &status));
      CUresult end = cuStreamEndCapture(stream, &graph);
      printf("%s,%s,%s,%s,%s\n", questions[q].name, relaxed ? "relaxed" : "ordinary", text_of(answer),
             status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? "active" : status == CU_STREAM_CAPTURE_STATUS_NONE ? "none" : "invalidated",
             text_of(end));
      if (graph) CHECK(cuGraphDestroy(graph));
      CHECK(cuModuleUnload(module));
      CHECK(cuLibraryUnload(library));
    }
  }
  return 0;
}
