/* A user's own shim, as quota libraries are: exports driver functions, counts their calls, and forwards to the next library.
   With HOOKS_DLSYM it answers dlsym too, and finds the driver by its name, as others do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#ifndef NAME
#define NAME "shim"
#endif

typedef void *pointer;
typedef unsigned (*launch_function)(pointer, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, pointer,
                                    pointer *, pointer *);
static int launches, allocations;

#ifdef HOOKS_DLSYM
static pointer genuine(pointer handle, const char *name) {
    static pointer (*found)(pointer, const char *);
    if (!found)
        found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return found(handle, name);
}
static pointer next(const char *name) { return genuine(dlopen("libcuda.so.1", RTLD_NOW), name); }
#else
static pointer next(const char *name) { return dlsym(RTLD_NEXT, name); }
#endif

unsigned cuLaunchKernel(pointer f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                        pointer stream, pointer *parameters, pointer *extra) {
    launches++;
    return ((launch_function)next("cuLaunchKernel"))(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
}

unsigned cuMemAlloc_v2(unsigned long *address, size_t bytes) {
    allocations++;
    return ((unsigned (*)(unsigned long *, size_t))next("cuMemAlloc_v2"))(address, bytes);
}

#ifdef HOOKS_DLSYM
pointer dlsym(pointer handle, const char *name) {
    if (!strcmp(name, "cuLaunchKernel"))
        return cuLaunchKernel;
    if (!strcmp(name, "cuMemAlloc_v2"))
        return cuMemAlloc_v2;
    return genuine(handle, name);
}
#endif

__attribute__((destructor)) static void tell(void) {
    if (launches + allocations)
        printf(NAME ": %d launches, %d allocations\n", launches, allocations);
}
