// Kernels for the driver-API programs of this folder, loaded by them as a cubin.

extern "C" __global__ void empty() {}

extern "C" __global__ void empty8(float *, float *, float *, int, int, int, float, float) {}

// Spins for `cycles` of the multiprocessor's clock; thread 0 says how many it took, and the nanoseconds of %globaltimer.
extern "C" __global__ void spin(long long cycles, long long *elapsed) {
  unsigned long long began, ended;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(began));
  long long start = clock64(), now;
  do now = clock64();
  while (now - start < cycles);
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ended));
  if (blockIdx.x == 0 && threadIdx.x == 0 && elapsed) {
    elapsed[0] = now - start;
    elapsed[1] = (long long)(ended - began);
  }
}
