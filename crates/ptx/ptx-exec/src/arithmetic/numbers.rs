//! `.f32` as NVIDIA's hardware has it: one NaN, flushing, saturation, the order of numbers.

/// The NaN of `.f32`.
const NAN: u32 = 0x7fff_ffff;

/// `value`, with NVIDIA's NaN for any. Told by the bits: a comparison is optimised away after a
/// square root.
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

/// `.sat` of what `.ftz` has flushed.
#[inline(always)]
pub(crate) fn saturate_flushed(value: f32) -> f32 {
    let positive = if value >= f32::MIN_POSITIVE { value } else { 0.0 };
    if positive > 1.0 { 1.0 } else { positive }
}

/// `.sat`: into [0, 1], NaN to 0. Two selections: nested in one another they become branches.
#[inline(always)]
pub(crate) fn saturate(value: f32) -> f32 {
    let positive = if value > 0.0 { value } else { 0.0 };
    if positive > 1.0 { 1.0 } else { positive }
}

const TWO_31: f32 = 2_147_483_648.0;

/// The integer of a whole number that may be too large, or a NaN, which becomes 0: what `as i32`
/// gives, which compilers take apart into scalars.
#[inline(always)]
pub(crate) fn to_i32(value: f32) -> i32 {
    let number = if value.is_nan() { 0.0 } else { value };
    let inside = if number >= -TWO_31 { number } else { -TWO_31 };
    // The last number below 2^31.
    let inside = if inside < TWO_31 { inside } else { TWO_31 - 128.0 };
    // SAFETY: at least -2^31 and less than 2^31.
    let integer = unsafe { inside.to_int_unchecked::<i32>() };
    if number >= TWO_31 { i32::MAX } else { integer }
}

/// [`to_i32`] without a sign, as `as u32`.
#[inline(always)]
pub(crate) fn to_u32(value: f32) -> u32 {
    let positive = if value > 0.0 { value } else { 0.0 };
    let upper = if positive >= TWO_31 { positive - TWO_31 } else { positive };
    let integer = to_i32(upper) as u32;
    let integer = if positive >= TWO_31 { integer | 1 << 31 } else { integer };
    if positive >= 2.0 * TWO_31 { u32::MAX } else { integer }
}

/// `a + b`.
pub(crate) fn add_f32(a: u32, b: u32) -> u32 {
    canonical(f32::from_bits(a) + f32::from_bits(b)).to_bits()
}

/// `a + b` with `.ftz`.
pub(crate) fn add_f32_flushed(a: u32, b: u32) -> u32 {
    flush(canonical(flush(f32::from_bits(a)) + flush(f32::from_bits(b)))).to_bits()
}

/// The smaller of two numbers: -0 is less than +0, and a NaN loses against a number. Of two NaNs,
/// any.
#[inline(always)]
pub(crate) fn minimum(a: f32, b: f32) -> f32 {
    // Numbers that are equal differ in the sign of zero at most.
    let (first, second) = (if a < b { a } else { b }, if b < a { b } else { a });
    number_of(a, b, f32::from_bits(first.to_bits() | second.to_bits()))
}

/// The larger of two numbers, likewise.
#[inline(always)]
pub(crate) fn maximum(a: f32, b: f32) -> f32 {
    let (first, second) = (if a > b { a } else { b }, if b > a { b } else { a });
    number_of(a, b, f32::from_bits(first.to_bits() & second.to_bits()))
}

/// `value`, or the other one where `a` or `b` is a NaN.
#[inline(always)]
fn number_of(a: f32, b: f32, value: f32) -> f32 {
    let value = if a.is_nan() { b } else { value };
    if b.is_nan() { a } else { value }
}

/// `.NaN`: a NaN wins.
#[inline(always)]
pub(crate) fn with_nan(a: f32, b: f32, value: f32) -> f32 {
    if a.is_nan() | b.is_nan() { f32::from_bits(NAN) } else { value }
}
