// What the driver-API programs of this folder share: error checks, the time-stamp counter, order statistics (statistics.h).
#pragma once
#include "statistics.h"
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

#define CHECK(call)                                                                     \
  do {                                                                                  \
    CUresult result_ = (call);                                                          \
    if (result_ != CUDA_SUCCESS) {                                                      \
      const char *text_ = "?";                                                          \
      cuGetErrorName(result_, &text_);                                                  \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, text_);             \
      exit(1);                                                                          \
    }                                                                                   \
  } while (0)

// The time-stamp counter, after everything before it and before everything after it.
static inline uint64_t ticks(void) {
  _mm_lfence();
  uint64_t t = __rdtsc();
  _mm_lfence();
  return t;
}

static inline double monotonic_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}

// Nanoseconds of one tick, from 200 ms against CLOCK_MONOTONIC.
static inline double ns_per_tick(void) {
  double ns = monotonic_ns();
  uint64_t t = ticks();
  while (monotonic_ns() - ns < 2e8) {
  }
  return (monotonic_ns() - ns) / (double)(ticks() - t);
}

// A context on device 0.
static inline CUdevice first_device(CUcontext *context) {
  CUdevice device;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(context, device));
  CHECK(cuCtxSetCurrent(*context));
  return device;
}
