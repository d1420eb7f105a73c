//! Single numbers in half precision: `.f16` and `.bf16`.

use crate::arithmetic::half::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use crate::arithmetic::numbers::{maximum, minimum};

/// `add` of `.f16`.
#[inline(always)]
pub(crate) fn add_f16(a: u16, b: u16) -> u16 {
    f32_to_f16(f16_to_f32(a) + f16_to_f32(b))
}

/// `add` of `.bf16`.
#[inline(always)]
pub(crate) fn add_bf16(a: u16, b: u16) -> u16 {
    f32_to_bf16(bf16_to_f32(a) + bf16_to_f32(b))
}

/// `min` of `.f16`.
pub(crate) fn least_f16(a: u16, b: u16) -> u16 {
    f32_to_f16(minimum(f16_to_f32(a), f16_to_f32(b)))
}

/// `max` of `.f16`.
pub(crate) fn most_f16(a: u16, b: u16) -> u16 {
    f32_to_f16(maximum(f16_to_f32(a), f16_to_f32(b)))
}

/// `min` of `.bf16`.
pub(crate) fn least_bf16(a: u16, b: u16) -> u16 {
    f32_to_bf16(minimum(bf16_to_f32(a), bf16_to_f32(b)))
}

/// `max` of `.bf16`.
pub(crate) fn most_bf16(a: u16, b: u16) -> u16 {
    f32_to_bf16(maximum(bf16_to_f32(a), bf16_to_f32(b)))
}
