/* A program that is linked with the driver, and launches through each way to find a driver function: linked, the default scope,
   the driver's handle, cuGetProcAddress. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef void *pointer;
typedef unsigned (*launch_function)(pointer, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, pointer,
                                    pointer *, pointer *);
extern unsigned cuInit(unsigned), cuCtxCreate_v2(pointer *, unsigned, int), cuModuleLoadData(pointer *, const char *),
    cuModuleGetFunction(pointer *, pointer, const char *), cuMemAlloc_v2(unsigned long *, size_t),
    cuLaunchKernel(pointer, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, pointer, pointer *, pointer *),
    cuGetProcAddress_v2(const char *, pointer *, int, unsigned long, pointer);

static void check(unsigned result) {
    if (result) {
        printf("failed: %u\n", result);
        exit(1);
    }
}

static void launch(pointer found, pointer function, int times) {
    for (int i = 0; i < times; i++)
        check(((launch_function)found)(function, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0));
}

int main(void) {
    pointer context, module, function, found;
    unsigned long address;
    check(cuInit(0));
    check(cuCtxCreate_v2(&context, 0, 0));
    check(cuModuleLoadData(&module, "shimmed_100"));
    check(cuModuleGetFunction(&function, module, "shimmed_100"));
    check(cuMemAlloc_v2(&address, 64));
    launch(cuLaunchKernel, function, 1);
    launch(dlsym(RTLD_DEFAULT, "cuLaunchKernel"), function, 2);
    launch(dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchKernel"), function, 4);
    check(cuGetProcAddress_v2("cuLaunchKernel", &found, 12000, 0, 0));
    launch(found, function, 8);
    return 0;
}
