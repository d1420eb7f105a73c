// A runtime-API program that prints its kernel's handles and launches it; run under handle_shim.c.
#include <cstdio>

__global__ void kernel(int *p) { *p = 42; }

int main() {
  int *p, value = 0;
  cudaKernel_t as_kernel;
  cudaFunction_t as_function;
  if (cudaMalloc(&p, sizeof *p) != cudaSuccess) return 1;
  kernel<<<1, 1>>>(p);
  cudaGetKernel(&as_kernel, (const void *)kernel);
  cudaGetFuncBySymbol(&as_function, (const void *)kernel);
  cudaMemcpy(&value, p, sizeof value, cudaMemcpyDeviceToHost);
  printf("CUkernel is         %p\nCUfunction is       %p\nresult %d: %s\n", (void *)as_kernel, (void *)as_function, value,
         cudaGetErrorString(cudaGetLastError()));
}
