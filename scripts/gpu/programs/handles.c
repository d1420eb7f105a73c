// Do the CUfunction calls take a CUkernel that was cast to CUfunction, and the CUkernel calls a CUfunction?
//
//   handles CUBIN kernel|function         (CUBIN: kernels.cu)
//
// One direction a run: the second may crash, which is an answer too.
#include "driver.h"

#define TRY(call)                                         \
  do {                                                    \
    fflush(stdout);                                       \
    CUresult result_ = (call);                            \
    const char *text_ = "?";                              \
    cuGetErrorName(result_, &text_);                      \
    printf("%s: %s\n", #call, text_);                     \
  } while (0)

int main(int argc, char **argv) {
  if (argc != 3) return fprintf(stderr, "usage: handles CUBIN kernel|function\n"), 2;
  CUcontext context;
  CUdevice device = first_device(&context);
  CUlibrary library;
  CUkernel kernel;
  CUfunction function, of_kernel;
  CUmodule module, m;
  const char *name = "-";
  int value = -1;
  CHECK(cuLibraryLoadFromFile(&library, argv[1], NULL, NULL, 0, NULL, NULL, 0));
  CHECK(cuLibraryGetKernel(&kernel, library, "empty8"));
  CHECK(cuModuleLoad(&module, argv[1]));
  CHECK(cuModuleGetFunction(&function, module, "empty8"));
  if (strcmp(argv[2], "kernel") == 0) {
    CUfunction cast = (CUfunction)kernel;
    TRY(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, cast));
    TRY(cuFuncGetName(&name, cast));
    printf("registers %d, name %s\n", value, name);
    TRY(cuFuncGetModule(&m, cast));
    TRY(cuFuncSetAttribute(cast, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536));
    TRY(cuFuncSetCacheConfig(cast, CU_FUNC_CACHE_PREFER_NONE));
    TRY(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, cast, 128, 0));
    TRY(cuKernelGetFunction(&of_kernel, kernel));
    printf("cuKernelGetFunction returned %s\n", of_kernel == cast ? "the same handle" : "another handle");
    TRY(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, of_kernel));
    printf("its dynamic limit after the change: %d\n", value);
  } else {
    CUkernel cast = (CUkernel)function;
    TRY(cuKernelGetName(&name, cast));
    TRY(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, cast, device));
    TRY(cuKernelGetFunction(&of_kernel, cast));
    printf("registers %d, name %s\n", value, name);
  }
  return 0;
}
