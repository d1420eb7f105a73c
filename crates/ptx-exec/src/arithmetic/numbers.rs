//! `.f32` as NVIDIA's hardware has it: one NaN, flushing, saturation, the order of numbers.

/// The NaN of `.f32`.
const NAN: u32 = 0x7fff_ffff;

/// `value`, with NVIDIA's NaN for any. Told by the bits: a comparison is optimised away after a square root.
#[inline(always)]
pub(crate) fn canonical(value: f32) -> f32 {
    let bits = value.to_bits();
    let magnitude = (bits & 0x7fff_ffff) as i32;
    f32::from_bits(if magnitude > 0x7f80_0000 { NAN } else { bits })
}

/// `.ftz`: subnormal numbers become zeros of their sign.
#[inline(always)]
pub(crate) fn flush(value: f32) -> f32 {
    let bits = value.to_bits();
    f32::from_bits(if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits })
}

/// `.sat`: into [0, 1], NaN to 0.
#[inline(always)]
pub(crate) fn saturate(value: f32) -> f32 {
    if value > 0.0 { value.min(1.0) } else { 0.0 }
}

/// `a + b`.
pub(crate) fn add_f32(a: u32, b: u32) -> u32 {
    canonical(f32::from_bits(a) + f32::from_bits(b)).to_bits()
}

/// `a + b` with `.ftz`.
pub(crate) fn add_f32_flushed(a: u32, b: u32) -> u32 {
    flush(canonical(flush(f32::from_bits(a)) + flush(f32::from_bits(b)))).to_bits()
}

/// The smaller of two numbers: -0 is less than +0, and a NaN loses against a number.
#[inline(always)]
pub(crate) fn minimum(a: f32, b: f32) -> f32 {
    let first = if a == b { a.is_sign_negative() } else { a < b };
    if b.is_nan() || first { canonical(a) } else { canonical(b) }
}

/// The larger of two numbers, likewise.
#[inline(always)]
pub(crate) fn maximum(a: f32, b: f32) -> f32 {
    let first = if a == b { a.is_sign_positive() } else { a > b };
    if b.is_nan() || first { canonical(a) } else { canonical(b) }
}

/// `.NaN`: a NaN wins.
#[inline(always)]
pub(crate) fn with_nan(a: f32, b: f32, value: f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::from_bits(NAN) } else { value }
}
