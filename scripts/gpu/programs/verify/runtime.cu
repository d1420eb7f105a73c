// The runtime API in its ordinary uses: null and other streams, dynamic shared memory, cudaLaunchKernel, copies, sets,
// events, host functions, launches that fail. Built with static and with shared cudart, with either default stream.
#include "output.h"

template <int N>
__global__ void scramble(uint32_t *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
#pragma unroll
  for (int k = 0; k < N; k++) x[i] = x[i] * 1664525u + 1013904223u;
}

int main() {
  const int n = 100003, blocks = (n + 255) / 256;
  uint32_t *x = random_device(n, 1), *y = random_device(n, 2), *sums, *pinned;
  cudaStream_t streams[4];
  cudaEvent_t event;
  long launches = 0;
  CHECK(cudaMalloc(&sums, blocks * sizeof *sums));
  CHECK(cudaMallocHost(&pinned, blocks * sizeof *pinned));
  *pinned = 0;
  CHECK(cudaEventCreate(&event));
  for (auto &s : streams) CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));

  for (uint32_t k = 0; k < 500; k++, launches++) mix<<<blocks, 256>>>(x, y, 2 * k + 1, n);
  CHECK(cudaDeviceSynchronize());
  for (int k = 0; k < 400; k++, launches++) {  // each stream has its own quarter
    int part = n / 4, s = k % 4;
    scramble<5><<<(part + 127) / 128, 128, 0, streams[s]>>>(x + s * part, part);
  }
  for (auto &s : streams) CHECK(cudaStreamSynchronize(s));
  for (int threads = 32; threads <= 1024; threads *= 2, launches += 2) {
    scramble<1><<<(n + threads - 1) / threads, threads>>>(y, n);
    block_sums<<<blocks, 256, 1024 + threads>>>(x, sums, n);
  }
  CHECK(cudaDeviceSynchronize());  // the other streams don't wait for the null stream
  int count = n;
  uint32_t factor = 7;
  void *arguments[] = {&x, &y, &factor, &count};
  CHECK(cudaLaunchKernel((const void *)mix, dim3(blocks, 1, 1), dim3(256), arguments, 0, streams[0]));
  launches++;
  CHECK(cudaEventRecord(event, streams[0]));
  CHECK(cudaStreamWaitEvent(streams[1], event, 0));
  CHECK(cudaMemsetAsync(y, 0x5a, 1024, streams[1]));
  CHECK(cudaLaunchHostFunc(streams[1], [](void *p) { ++*static_cast<uint32_t *>(p); }, pinned));
  CHECK(cudaStreamSynchronize(streams[1]));

  // Launches that the driver or the runtime refuses execute nothing.
  mix<<<blocks, 2048>>>(x, y, 3, n);
  if (cudaGetLastError() == cudaSuccess) return 1;
  mix<<<blocks, 256, 1 << 20>>>(x, y, 3, n);
  if (cudaGetLastError() == cudaSuccess) return 1;

  block_sums<<<blocks, 256, 1024>>>(x, sums, n), launches++;
  CHECK(cudaMemcpyAsync(pinned, sums, blocks * sizeof *sums, cudaMemcpyDeviceToHost));
  CHECK(cudaDeviceSynchronize());
  write_words(pinned, blocks);
  write_words(x, n);
  write_words(y, n);
  say_launches(launches);
}
