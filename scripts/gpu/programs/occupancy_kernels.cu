// Kernels that differ in what theoretical occupancy depends on: registers, static shared memory, local memory, and the
// most threads that a block may have. `programs/occupancy.c` asks the driver about each in many launch configurations.

// Keeps LIVE values in registers across a barrier: every load is before it, every use after it.
template <int LIVE, int SHARED>
__device__ __forceinline__ void body(float *p) {
  float value[LIVE], sum = 0;
#pragma unroll
  for (int i = 0; i < LIVE; i++) asm volatile("ld.global.f32 %0, [%1];" : "=f"(value[i]) : "l"(p + i * 64));
  if constexpr (SHARED > 0) {
    __shared__ volatile char fixed[SHARED];
    for (int i = threadIdx.x; i < SHARED; i += blockDim.x) fixed[i] = (char)i;
    asm volatile("bar.sync 0;" ::: "memory");
    sum = fixed[threadIdx.x % SHARED];
  }
  asm volatile("bar.sync 0;" ::: "memory");
#pragma unroll
  for (int i = 0; i < LIVE; i++) sum = sum * value[i] + value[LIVE - 1 - i];
  p[threadIdx.x] = sum;
}

#define KERNEL(LIVE, SHARED) \
  extern "C" __global__ void live##LIVE##_shared##SHARED(float *p) { body<LIVE, SHARED>(p); }
#define BOUNDED(LIVE, SHARED, THREADS, BLOCKS)                  \
  extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) \
      live##LIVE##_shared##SHARED##_bounds##THREADS##_##BLOCKS(float *p) { body<LIVE, SHARED>(p); }
#define CAPPED(LIVE, REGISTERS)                     \
  extern "C" __global__ void __maxnreg__(REGISTERS) \
      live##LIVE##_capped##REGISTERS(float *p) { body<LIVE, 0>(p); }

KERNEL(1, 0) KERNEL(4, 0) KERNEL(8, 0) KERNEL(12, 0) KERNEL(16, 0) KERNEL(20, 0) KERNEL(24, 0) KERNEL(28, 0)
KERNEL(32, 0) KERNEL(36, 0) KERNEL(40, 0) KERNEL(44, 0) KERNEL(48, 0) KERNEL(52, 0) KERNEL(56, 0) KERNEL(60, 0)
KERNEL(64, 0) KERNEL(70, 0) KERNEL(76, 0) KERNEL(82, 0) KERNEL(88, 0) KERNEL(94, 0) KERNEL(100, 0) KERNEL(106, 0)
KERNEL(112, 0) KERNEL(118, 0) KERNEL(126, 0) KERNEL(134, 0) KERNEL(142, 0) KERNEL(150, 0) KERNEL(158, 0)
KERNEL(166, 0) KERNEL(174, 0) KERNEL(184, 0) KERNEL(194, 0) KERNEL(204, 0) KERNEL(214, 0) KERNEL(224, 0) KERNEL(236, 0)
KERNEL(8, 16) KERNEL(10, 100) KERNEL(12, 1024) KERNEL(14, 2047) KERNEL(18, 4096) KERNEL(22, 6144) KERNEL(26, 8191)
KERNEL(30, 12345) KERNEL(34, 16384) KERNEL(38, 20480) KERNEL(42, 24576) KERNEL(46, 32768) KERNEL(50, 40000)
KERNEL(58, 49152) KERNEL(66, 1) KERNEL(90, 9000) KERNEL(110, 33000) KERNEL(140, 3000) KERNEL(200, 48000)
BOUNDED(20, 0, 64, 1) BOUNDED(20, 0, 96, 16) BOUNDED(40, 512, 128, 4) BOUNDED(60, 0, 192, 2) BOUNDED(80, 0, 256, 1)
BOUNDED(80, 0, 256, 2) BOUNDED(100, 4096, 384, 1) BOUNDED(30, 0, 512, 4) BOUNDED(50, 0, 768, 1) BOUNDED(90, 0, 1000, 1)
CAPPED(60, 24) CAPPED(100, 32) CAPPED(120, 40) CAPPED(140, 64) CAPPED(230, 96) CAPPED(20, 128) CAPPED(20, 255)
