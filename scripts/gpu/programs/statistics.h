// Order statistics of a sample. Every quantile that a program of this folder prints comes from here.
//
// `sorted` is the only way to make a `Sorted`, and `quantile` takes nothing else: an unsorted sample cannot be read as if it were
// sorted, in whatever order the arguments of a call are evaluated. `xtask/tests/gpu_scripts.rs` tests it.
#pragma once
#include <stdlib.h>

typedef struct {
  const double *values;
  size_t count;
} Sorted;

static inline int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// Sorts `values` in place. The result refers to them: they must stay as they are while it is used.
static inline Sorted sorted(double *values, size_t count) {
  qsort(values, count, sizeof *values, ascending);
  Sorted sample = {values, count};
  return sample;
}

// The quantile `q`, 0 to 1, of at least one value: the nearest one, rounding up between two.
static inline double quantile(Sorted sample, double q) {
  return sample.values[(size_t)(q * (double)(sample.count - 1) + 0.5)];
}

static inline double mean(Sorted sample) {
  double sum = 0;
  for (size_t i = 0; i < sample.count; i++) sum += sample.values[i];
  return sum / (double)sample.count;
}
