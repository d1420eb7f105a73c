//! Arithmetic in half precision: `.f16`, `.bf16` and pairs of them.

use ptx::ScalarType;

use super::super::approximate;
use super::super::half::{bf16_fma, bf16_to_f32, f16_fma, f16_to_f32, f32_to_bf16, f32_to_f16};
use super::super::lanes::{LaneHandler, binary, binary_each, ternary, unary};
use super::super::numbers::{flush, saturate};
use super::decode::Pure;
use super::float::Modifiers;
use super::form::Form;

#[inline(always)]
pub(super) fn add_f16(a: u16, b: u16) -> u16 {
    f32_to_f16(f16_to_f32(a) + f16_to_f32(b))
}

#[inline(always)]
pub(super) fn add_bf16(a: u16, b: u16) -> u16 {
    f32_to_bf16(bf16_to_f32(a) + bf16_to_f32(b))
}

/// `f` on both halves.
#[inline(always)]
pub(super) fn pairwise(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    u32::from(f(a as u16, b as u16)) | u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16
}

/// Makes an expression on `.f32` one on halves or pairs of halves.
macro_rules! half {
    ($ty:expr, $shape1:ident, |$($x:ident),+| $body:expr) => {
        match $ty {
            ScalarType::F16 => $shape1(|$($x: u16),+| {
                $(let $x = f16_to_f32($x);)+
                f32_to_f16($body)
            }),
            ScalarType::Bf16 => $shape1(|$($x: u16),+| {
                $(let $x = bf16_to_f32($x);)+
                f32_to_bf16($body)
            }),
            ScalarType::F16x2 => $shape1(|$($x: u32),+| {
                let low = { $(let $x = f16_to_f32($x as u16);)+ f32_to_f16($body) };
                let high = { $(let $x = f16_to_f32(($x >> 16) as u16);)+ f32_to_f16($body) };
                u32::from(low) | u32::from(high) << 16
            }),
            ScalarType::Bf16x2 => $shape1(|$($x: u32),+| {
                let low = { $(let $x = bf16_to_f32($x as u16);)+ f32_to_bf16($body) };
                let high = { $(let $x = bf16_to_f32(($x >> 16) as u16);)+ f32_to_bf16($body) };
                u32::from(low) | u32::from(high) << 16
            }),
            _ => return None,
        }
    };
}

#[inline(always)]
pub(super) fn flush_f16(half: u16) -> u16 {
    if half & 0x7c00 == 0 { half & 0x8000 } else { half }
}

#[inline(always)]
fn saturate_f16(half: u16) -> u16 {
    f32_to_f16(saturate(f16_to_f32(half)))
}

#[inline(always)]
fn relu(half: u16, infinity: u16) -> u16 {
    // NaN becomes the canonical one, negative numbers +0.
    if half & 0x7fff > infinity {
        0x7fff
    } else if half & 0x8000 != 0 {
        0
    } else {
        half
    }
}

#[inline(always)]
fn fused_pair(a: u32, b: u32, c: u32, f: impl Fn(u16, u16, u16) -> u16) -> u32 {
    let low = f(a as u16, b as u16, c as u16);
    u32::from(low) | u32::from(f((a >> 16) as u16, (b >> 16) as u16, (c >> 16) as u16)) << 16
}

fn half_fma(form: &mut Form, modifiers: Modifiers, ty: ScalarType) -> Option<LaneHandler> {
    use ScalarType::*;
    let with_relu = form.flag("relu");
    Some(match (ty, modifiers.ftz, modifiers.sat, with_relu) {
        (F16, false, false, false) => ternary(f16_fma),
        (F16, false, true, false) => ternary(|a, b, c| saturate_f16(f16_fma(a, b, c))),
        (F16, false, false, true) => ternary(|a, b, c| relu(f16_fma(a, b, c), 0x7c00)),
        (F16, true, false, false) => ternary(f16_fma_flushed),
        (F16, true, true, false) => ternary(|a, b, c| saturate_f16(f16_fma_flushed(a, b, c))),
        (F16, true, false, true) => ternary(|a, b, c| relu(f16_fma_flushed(a, b, c), 0x7c00)),
        (F16x2, false, false, false) => ternary(|a, b, c| fused_pair(a, b, c, f16_fma)),
        (F16x2, false, true, false) => {
            ternary(|a, b, c| fused_pair(a, b, c, |a, b, c| saturate_f16(f16_fma(a, b, c))))
        }
        (F16x2, false, false, true) => {
            ternary(|a, b, c| fused_pair(a, b, c, |a, b, c| relu(f16_fma(a, b, c), 0x7c00)))
        }
        (F16x2, true, false, false) => ternary(|a, b, c| fused_pair(a, b, c, f16_fma_flushed)),
        (F16x2, true, true, false) => {
            ternary(|a, b, c| fused_pair(a, b, c, |a, b, c| saturate_f16(f16_fma_flushed(a, b, c))))
        }
        (F16x2, true, false, true) => {
            ternary(|a, b, c| fused_pair(a, b, c, |a, b, c| relu(f16_fma_flushed(a, b, c), 0x7c00)))
        }
        (Bf16, false, false, false) => ternary(bf16_fma),
        (Bf16, false, false, true) => ternary(|a, b, c| relu(bf16_fma(a, b, c), 0x7f80)),
        (Bf16x2, false, false, false) => ternary(|a, b, c| fused_pair(a, b, c, bf16_fma)),
        (Bf16x2, false, false, true) => {
            ternary(|a, b, c| fused_pair(a, b, c, |a, b, c| relu(bf16_fma(a, b, c), 0x7f80)))
        }
        _ => return None,
    })
}

#[inline(always)]
fn f16_fma_flushed(a: u16, b: u16, c: u16) -> u16 {
    flush_f16(f16_fma(flush_f16(a), flush_f16(b), flush_f16(c)))
}

/// Decodes arithmetic on halves and pairs of halves.
pub(super) fn decode(form: &mut Form, modifiers: Modifiers, ty: ScalarType) -> Option<Pure> {
    if form.opcode == "fma" {
        return Pure::uniform(half_fma(form, modifiers, ty)?, ty, 3);
    }
    if modifiers.ftz || modifiers.sat {
        return half_modified(form, modifiers, ty);
    }
    let (run, sources) = match form.opcode {
        "add" => (half!(ty, binary, |a, b| a + b), 2),
        "sub" => (half!(ty, binary, |a, b| a - b), 2),
        "mul" if matches!(ty, ScalarType::Bf16) => (binary(|a: u16, b: u16| bf16_fma(a, b, 0x8000)), 2),
        "mul" if matches!(ty, ScalarType::Bf16x2) => {
            (binary(|a: u32, b: u32| pairwise(a, b, |a, b| bf16_fma(a, b, 0x8000))), 2)
        }
        "mul" => (half!(ty, binary, |a, b| a * b), 2),
        "ex2" => (half!(ty, unary, |a| approximate::exp2(a)), 1),
        "tanh" => (half!(ty, unary, |a| approximate::tanh(a)), 1),
        _ => return None,
    };
    Pure::uniform(run, ty, sources)
}

/// `ex2.ftz`.
fn power_flushed(ty: ScalarType) -> Option<LaneHandler> {
    use ScalarType::*;
    #[inline(always)]
    fn half(a: u16) -> u16 {
        flush_f16(f32_to_f16(approximate::exp2(f16_to_f32(a))))
    }
    #[inline(always)]
    fn brain(a: u16) -> u16 {
        f32_to_bf16(flush(approximate::exp2(bf16_to_f32(a))))
    }
    Some(match ty {
        F16 => unary(half),
        F16x2 => unary(|a: u32| pairwise(a, a, |a, _| half(a))),
        Bf16 => unary(brain),
        Bf16x2 => unary(|a: u32| pairwise(a, a, |a, _| brain(a))),
        _ => return None,
    })
}

/// `.ftz` and `.sat` on `.f16` and pairs of them.
fn half_modified(form: &mut Form, modifiers: Modifiers, ty: ScalarType) -> Option<Pure> {
    use ScalarType::*;
    macro_rules! modified {
        ($operation:expr) => {
            match (ty, modifiers.ftz, modifiers.sat) {
                (F16, true, false) => {
                    binary_each(|a: u16, b: u16| flush_f16($operation(flush_f16(a), flush_f16(b))))
                }
                (F16, false, true) => binary_each(|a: u16, b: u16| saturate_f16($operation(a, b))),
                (F16, true, true) => binary_each(|a: u16, b: u16| {
                    saturate_f16(flush_f16($operation(flush_f16(a), flush_f16(b))))
                }),
                (F16x2, true, false) => binary_each(|a: u32, b: u32| {
                    pairwise(a, b, |a, b| flush_f16($operation(flush_f16(a), flush_f16(b))))
                }),
                (F16x2, false, true) => {
                    binary_each(|a: u32, b: u32| pairwise(a, b, |a, b| saturate_f16($operation(a, b))))
                }
                (F16x2, true, true) => binary_each(|a: u32, b: u32| {
                    pairwise(a, b, |a, b| saturate_f16(flush_f16($operation(flush_f16(a), flush_f16(b)))))
                }),
                _ => return None,
            }
        };
    }
    let run = match form.opcode {
        "add" => modified!(add_f16),
        "sub" => modified!(|a: u16, b: u16| add_f16(a, if b & 0x7fff > 0x7c00 { b } else { b ^ 0x8000 })),
        "mul" => modified!(|a: u16, b: u16| f32_to_f16(f16_to_f32(a) * f16_to_f32(b))),
        "ex2" if modifiers.ftz && !modifiers.sat => {
            return Pure::uniform(power_flushed(ty)?, ty, 1);
        }
        _ => return None,
    };
    Pure::uniform(run, ty, 2)
}

pub(super) use half;
