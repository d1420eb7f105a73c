// Tensors of i32.

#include "tensor.cuh"

KERNELS(i32, I32)
CAST(i32, I32, f32, F32)
CAST(i32, I32, f16, F16)
CAST(i32, I32, bf16, BF16)
