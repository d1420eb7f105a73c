// Tensors of f16.

#include "tensor.cuh"

KERNELS(f16, F16)
FRACTIONS(f16, F16)
CAST(f16, F16, f32, F32)
CAST(f16, F16, bf16, BF16)
CAST(f16, F16, i32, I32)
