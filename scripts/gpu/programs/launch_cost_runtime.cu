// What one <<<>>> costs on the CPU. Output as of launch_cost.c, with one path.
//
//   launch_cost_runtime CALLS
#include "driver.h"

#define SEGMENT 10000
#define BATCH 500

__global__ void empty() {}

int main(int argc, char **argv) {
  if (argc != 2) return fprintf(stderr, "usage: launch_cost_runtime CALLS\n"), 2;
  cudaStream_t stream;
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) return 1;
  double tick = ns_per_tick();
  static double v[SEGMENT];
  printf("path,segment,p50_ns,p90_ns,p99_ns,mean_ns\n");
  for (long s = -1; s < atol(argv[1]) / SEGMENT; s++) {  // segment -1 warms up
    for (int c = 0; c < SEGMENT; c++) {
      if (c % BATCH == 0) cudaStreamSynchronize(stream);
      uint64_t begin = ticks();
      empty<<<1, 1, 0, stream>>>();
      v[c] = (double)(ticks() - begin) * tick;
    }
    if (cudaGetLastError() != cudaSuccess) return 1;
    if (s < 0) continue;
    Sorted calls = sorted(v, SEGMENT);
    printf("runtime,%ld,%.2f,%.2f,%.2f,%.2f\n", s, quantile(calls, 0.5), quantile(calls, 0.9), quantile(calls, 0.99), mean(calls));
  }
  return cudaDeviceSynchronize() != cudaSuccess;
}
