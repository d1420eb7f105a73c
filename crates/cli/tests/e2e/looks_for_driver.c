/* Looks for `libcuda.so.1` in the folders of LD_LIBRARY_PATH, opens it by its path, makes 7 launches,
   and prints the path and what the calls returned. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char* const PTX = ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry k() { ret; }\n";

int main(void) {
  char path[4096];
  void* library = 0;
  for (char* folder = strtok(strdup(getenv("LD_LIBRARY_PATH")), ":"); folder && !library; folder = strtok(0, ":")) {
    snprintf(path, sizeof path, "%s/libcuda.so.1", folder);
    if (!access(path, R_OK)) library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  }
  if (!library) return puts("no driver file"), 1;
#define F(n) int (*n)() = (int (*)())dlsym(library, #n);
  F(cuInit) F(cuDevicePrimaryCtxRetain) F(cuCtxSetCurrent) F(cuModuleLoadData) F(cuModuleGetFunction)
  F(cuLaunchKernel) F(cuCtxSynchronize)
  void *context, *module, *function;
  int result = cuInit(0) | cuDevicePrimaryCtxRetain(&context, 0) | cuCtxSetCurrent(context);
  result |= cuModuleLoadData(&module, PTX) | cuModuleGetFunction(&function, module, "k");
  for (int i = 0; i < 7; i++)
    result |= cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, (void*)0, (void*)0, (void*)0);
  result |= cuCtxSynchronize();
  printf("%s: %d\n", path, result);
  return result;
}
