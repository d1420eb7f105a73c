// Tensors of f32.

#include "tensor.cuh"

KERNELS(f32, F32)
FRACTIONS(f32, F32)
CAST(f32, F32, f16, F16)
CAST(f32, F32, bf16, BF16)
CAST(f32, F32, i32, I32)
