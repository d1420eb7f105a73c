// A library with SONAME libcuda.so.1 that shows which handle the CUDA runtime gives to cuLaunchKernel.
//
// libcudart looks everything up through the one function that is replaced here. The real driver is $REAL_LIBCUDA.
#define _GNU_SOURCE
#include "driver.h"
#include <dlfcn.h>
#undef cuGetProcAddress

typedef CUresult (*GetProcAddress)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
typedef CUresult (*LaunchKernel)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                                 void **, void **);
static LaunchKernel real_launch;

static void *real(const char *name) {
  static void *library;
  if (!library) library = dlopen(getenv("REAL_LIBCUDA"), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  return library ? dlsym(library, name) : NULL;
}

static CUresult launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                       CUstream stream, void **arguments, void **extra) {
  printf("cuLaunchKernel got  %p\n", (void *)f);
  return real_launch(f, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra);
}

CUresult cuDriverGetVersion(int *version) { return ((CUresult(*)(int *))real("cuDriverGetVersion"))(version); }

CUresult cuGetProcAddress_v2(const char *name, void **address, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status) {
  CUresult result = ((GetProcAddress)real("cuGetProcAddress_v2"))(name, address, version, flags, status);
  if (name && address && strcmp(name, "cuLaunchKernel") == 0) real_launch = (LaunchKernel)*address, *address = (void *)launch;
  // The runtime asks for the function that it asks with, too, and goes on with the answer.
  if (name && address && strcmp(name, "cuGetProcAddress") == 0) *address = (void *)cuGetProcAddress_v2;
  return result;
}
