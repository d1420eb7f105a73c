// Tensors of bf16.

#include "tensor.cuh"

KERNELS(bf16, BF16)
FRACTIONS(bf16, BF16)
CAST(bf16, BF16, f32, F32)
CAST(bf16, BF16, f16, F16)
CAST(bf16, BF16, i32, I32)
