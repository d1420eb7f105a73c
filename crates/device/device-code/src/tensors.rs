//! The kernels of tensors, one module for each type of element. Every GPU since Turing executes
//! them, with every driver since CUDA 12.0.

use crate::{Module, module};

/// Elements of `float`.
pub static F32: Module = module!("tensors", "f32");
/// Elements of `__half`.
pub static F16: Module = module!("tensors", "f16");
/// Elements of `__nv_bfloat16`.
pub static BF16: Module = module!("tensors", "bf16");
/// Elements of `int`.
pub static I32: Module = module!("tensors", "i32");
