/* Opens drivers in the ways and by the paths that its arguments name, and makes a launch with each.
   -DFOUND and -DASKS make libraries of it: one that is found by the run path of the other. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef FOUND
const char* where(void) { return "found by the run path"; }
#elif defined(ASKS)
const char* ask(void) {
  void* library = dlopen("found.so", RTLD_NOW);
  return library ? ((const char* (*)(void))dlsym(library, "where"))() : dlerror();
}
#else

static int launch(void* driver) {
#define F(n) int (*n)() = (int (*)())dlsym(driver, #n);
  F(cuInit) F(cuCtxCreate_v2) F(cuModuleLoadData) F(cuModuleGetFunction) F(cuLaunchKernel)
  void *context = 0, *module = 0, *function = 0;
  int result = cuInit(0);
  result = result ? result : cuCtxCreate_v2(&context, 0, 0);
  result = result ? result : cuModuleLoadData(&module, "one_100");
  result = result ? result : cuModuleGetFunction(&function, module, "one_100");
  return result ? result : cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, (void*)0, (void*)0, (void*)0);
}

int main(int count, char** words) {
  int failed = 0;
  for (int i = 1; i + 1 < count; i += 2) {
    const char *way = words[i], *path = words[i + 1];
    void* library = !strcmp(way, "dlmopen")       ? dlmopen(LM_ID_BASE, path, RTLD_NOW)
                    : !strcmp(way, "dlmopen-new") ? dlmopen(LM_ID_NEWLM, path, RTLD_NOW)
                                                  : dlopen(path, RTLD_NOW);
    if (!library) {
      puts(dlerror());
      return 1;
    }
    if (!strcmp(way, "asks")) {
      puts(((const char* (*)(void))dlsym(library, "ask"))());
      continue;
    }
    failed = launch(library);
    printf("launched: %d\n", failed);
  }
  if (getenv("SHOWS_DRIVERS")) {
    char line[4096];
    FILE* maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) {
      if (strstr(line, "libcuda.so")) fputs(line, stdout);
    }
  }
  return failed;
}
#endif
