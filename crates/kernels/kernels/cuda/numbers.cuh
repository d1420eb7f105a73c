// Numbers of 16 bits, bf16 and f16, and their float32: what kernels of all techniques have in common.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace numbers {

// Two numbers rounded to 16 bits each.
template <typename T>
__device__ __forceinline__ uint32_t pack(float low, float high) {
  uint32_t both;
  if constexpr (std::is_same<T, __nv_bfloat16>::value)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

template <typename T>
__device__ __forceinline__ float2 unpack(uint32_t both) {
  if constexpr (std::is_same<T, __nv_bfloat16>::value)
    return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&both));
  else
    return __half22float2(*reinterpret_cast<const __half2*>(&both));
}
template <typename T>
__device__ __forceinline__ T narrow(float x) {
  if constexpr (std::is_same<T, __nv_bfloat16>::value) return __float2bfloat16_rn(x);
  else return __float2half_rn(x);
}

// Two neighbours in memory.
template <typename T>
__device__ __forceinline__ float2 widen_pair(const T* x) {
  return unpack<T>(*reinterpret_cast<const uint32_t*>(x));
}

// Transposes 4 x 4 words among the 4 threads of a quad: word j of thread i becomes word i of thread j.
__device__ __forceinline__ void quad_transpose(uint32_t (&w)[4], int quad) {
  auto swap = [](uint32_t& low, uint32_t& high, bool upper, int distance) {
    uint32_t other = __shfl_xor_sync(0xffffffff, upper ? low : high, distance);
    (upper ? low : high) = other;
  };
  swap(w[0], w[1], quad & 1, 1);
  swap(w[2], w[3], quad & 1, 1);
  swap(w[0], w[2], quad & 2, 2);
  swap(w[1], w[3], quad & 2, 2);
}

}  // namespace numbers
