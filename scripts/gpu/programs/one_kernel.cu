// The smallest program that runs a kernel, to time from start to end.
__global__ void kernel(int *p) { *p = 42; }

int main() {
  int *p, value = 0;
  cudaMalloc(&p, sizeof *p);
  kernel<<<1, 1>>>(p);
  return cudaMemcpy(&value, p, sizeof value, cudaMemcpyDeviceToHost) != cudaSuccess || value != 42;
}
