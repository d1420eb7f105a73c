// The kernels of driver_api.c, as a cubin and as PTX.
#include <cooperative_groups.h>

// x <- x * factor + y
extern "C" __global__ void mix(unsigned *x, const unsigned *y, unsigned factor, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * factor + y[i];
}

// Twice x <- the word three further on, times factor, with the whole grid in step.
extern "C" __global__ void rotate(unsigned *x, unsigned *y, unsigned factor, int n) {
  auto grid = cooperative_groups::this_grid();
  for (int i = grid.thread_rank(); i < n; i += grid.size()) y[i] = x[(i + 3) % n] * factor;
  grid.sync();
  for (int i = grid.thread_rank(); i < n; i += grid.size()) x[i] = y[(i + 3) % n] * factor;
}
