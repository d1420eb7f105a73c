//! Arithmetic in single and double precision with a direction of rounding, and other operations
//! that the compiler's plain ones cannot express: pairs of `.f32`, and sums of which one source is
//! half as wide.
//!
//! The host rounds in any direction if the control register of its vector unit says so. Compilers
//! take for granted that it says "to nearest", so a whole register is computed within one piece of
//! assembly, which sets the direction and restores what was there. The results of `.f32` get
//! NVIDIA's NaN, and where a NaN comes out of `.f64`, [`soft`] says which. CPUs without AVX2 and
//! FMA take all from [`soft`]; a test holds one against the other.

use ptx::ScalarType;

use crate::arithmetic::half::bf16_to_f32;
use crate::arithmetic::half_arithmetic;
use crate::arithmetic::numbers::{canonical, flush, saturate, saturate_flushed};
use crate::arithmetic::soft::{self, Format, Rounding};
use crate::registers::handler::LaneHandler;
use crate::registers::lanes::{WARP, map, wide_vectors};
use crate::registers::shapes::registers;

/// The operation to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Add,
    Sub,
    Mul,
    Fma,
    Div,
    Sqrt,
    /// `1 / a`.
    Reciprocal,
}

/// An operation with its rounding and modifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Directed {
    pub(crate) operation: Operation,
    pub(crate) rounding: Rounding,
    pub(crate) ftz: bool,
    pub(crate) sat: bool,
    /// `.f16` or `.bf16`, if the sources that are multiplied, or the first of a sum, are that.
    pub(crate) narrow: Option<ScalarType>,
}

const OPERATIONS: [Operation; 7] = [
    Operation::Add,
    Operation::Sub,
    Operation::Mul,
    Operation::Fma,
    Operation::Div,
    Operation::Sqrt,
    Operation::Reciprocal,
];

/// In the order of the control register's field.
const ROUNDINGS: [Rounding; 4] = [Rounding::NearestEven, Rounding::Down, Rounding::Up, Rounding::Zero];

const NARROW: [Option<ScalarType>; 3] = [None, Some(ScalarType::F16), Some(ScalarType::Bf16)];

impl Directed {
    /// As it travels in the immediate of a step.
    pub(crate) fn pack(self) -> u32 {
        let operation = OPERATIONS.iter().position(|known| *known == self.operation).unwrap_or(0) as u32;
        let rounding = ROUNDINGS.iter().position(|known| *known == self.rounding).unwrap_or(0) as u32;
        let narrow = NARROW.iter().position(|known| *known == self.narrow).unwrap_or(0) as u32;
        operation | rounding << 3 | narrow << 5 | u32::from(self.ftz) << 7 | u32::from(self.sat) << 8
    }

    #[inline(always)]
    fn unpack(bits: u32) -> Self {
        Directed {
            operation: OPERATIONS[(bits & 7).min(6) as usize],
            rounding: ROUNDINGS[(bits >> 3 & 3) as usize],
            narrow: NARROW[(bits >> 5 & 3).min(2) as usize],
            ftz: bits >> 7 & 1 != 0,
            sat: bits >> 8 & 1 != 0,
        }
    }
}

/// The handler for a type that all sources have in registers (a narrow source is a word too); the
/// immediate says the rest. None for other types.
pub(crate) fn handler(ty: ScalarType) -> Option<LaneHandler> {
    Some(match ty {
        ScalarType::F32 => registers!(u32 => u32, |a, b, c, how| singles(a, b, c, how)),
        ScalarType::F32x2 => registers!(u64 => u64, |a, b, c, how| pairs(a, b, c, how)),
        ScalarType::F64 => registers!(u64 => u64, |a, b, c, how| doubles(a, b, c, how)),
        _ => return None,
    })
}

/// A source as the operation takes it.
#[inline(always)]
fn prepared(source: &[u32; WARP], narrow: Option<ScalarType>, ftz: bool) -> [u32; WARP] {
    let wide = match narrow {
        None => *source,
        Some(ScalarType::F16) => map(&half_arithmetic::widened(&map(source, |a| a & 0xffff)), f32::to_bits),
        Some(_) => map(source, |a| bf16_to_f32(a as u16).to_bits()),
    };
    if ftz { map(&wide, |a| flush(f32::from_bits(a)).to_bits()) } else { wide }
}

#[inline(always)]
fn singles(a: &[u32; WARP], b: &[u32; WARP], c: &[u32; WARP], immediate: u32) -> [u32; WARP] {
    let how = Directed::unpack(immediate);
    let plain = !how.ftz && how.narrow.is_none();
    let result = if plain && how.operation != Operation::Reciprocal {
        exact_singles(how, a, b, c)
    } else {
        let second = if how.operation == Operation::Fma { how.narrow } else { None };
        let (a, b) = (prepared(a, how.narrow, how.ftz), prepared(b, second, how.ftz));
        let c = if how.operation == Operation::Fma { prepared(c, None, how.ftz) } else { *c };
        match how.operation {
            Operation::Reciprocal => exact_singles(how, &[1f32.to_bits(); WARP], &a, &c),
            _ => exact_singles(how, &a, &b, &c),
        }
    };
    finished(&result, how)
}

/// A result with NVIDIA's NaN and with the modifiers.
#[inline(always)]
fn finished(result: &[u32; WARP], how: Directed) -> [u32; WARP] {
    match (how.ftz, how.sat) {
        (false, false) => map(result, |x| canonical(f32::from_bits(x)).to_bits()),
        (true, false) => map(result, |x| flush(canonical(f32::from_bits(x))).to_bits()),
        (false, true) => map(result, |x| saturate(f32::from_bits(x)).to_bits()),
        (true, true) => map(result, |x| saturate_flushed(f32::from_bits(x)).to_bits()),
    }
}

/// `.f32x2`: the lanes are apart, so a register of pairs is computed as two of words, whichever
/// half of a pair they are.
#[inline(always)]
fn pairs(a: &[u64; WARP], b: &[u64; WARP], c: &[u64; WARP], immediate: u32) -> [u64; WARP] {
    let (a, b, c) = (words(a), words(b), words(c));
    let first = singles(&a[0], &b[0], &c[0], immediate);
    let second = singles(&a[1], &b[1], &c[1], immediate);
    let words = [first, second];
    // SAFETY: 64 words are 32 longs, of which any bits are valid.
    unsafe { std::mem::transmute::<[[u32; WARP]; 2], [u64; WARP]>(words) }
}

/// The words of a register of longs.
#[inline(always)]
fn words(longs: &[u64; WARP]) -> &[[u32; WARP]; 2] {
    // SAFETY: 32 longs are 64 words, of which any bits are valid, and aligned to more than words
    // are.
    unsafe { &*std::ptr::from_ref(longs).cast() }
}

#[inline(always)]
fn doubles(a: &[u64; WARP], b: &[u64; WARP], c: &[u64; WARP], immediate: u32) -> [u64; WARP] {
    let how = Directed::unpack(immediate);
    let one = [1f64.to_bits(); WARP];
    let (a, b) = if how.operation == Operation::Reciprocal { (&one, a) } else { (a, b) };
    #[cfg(target_arch = "x86_64")]
    if wide_vectors() {
        // SAFETY: the CPU has AVX2 and FMA.
        let mut result = unsafe { vector::doubles(how, a, b, c) };
        let is_nan = |bits: u64| bits & (u64::MAX >> 1) > soft::F64.infinity();
        let nans = map(&result, |bits| u64::from(is_nan(bits)));
        if nans.iter().fold(0, |any, nan| any | nan) != 0 {
            for (lane, value) in result.iter_mut().enumerate().filter(|(_, value)| is_nan(**value)) {
                *value = defined(how, soft::F64, a[lane], b[lane], c[lane]);
            }
        }
        return result;
    }
    std::array::from_fn(|lane| defined(how, soft::F64, a[lane], b[lane], c[lane]))
}

/// The operation on prepared sources; of a NaN any.
#[inline(always)]
fn exact_singles(how: Directed, a: &[u32; WARP], b: &[u32; WARP], c: &[u32; WARP]) -> [u32; WARP] {
    #[cfg(target_arch = "x86_64")]
    if wide_vectors() {
        // SAFETY: the CPU has AVX2 and FMA.
        return unsafe { vector::singles(how, a, b, c) };
    }
    std::array::from_fn(|lane| {
        let [a, b, c] = [a[lane], b[lane], c[lane]].map(u64::from);
        defined(how, soft::F32, a, b, c) as u32
    })
}

/// The operation as it is defined; `a` of a reciprocal is 1.
fn defined(how: Directed, format: Format, a: u64, b: u64, c: u64) -> u64 {
    match how.operation {
        Operation::Add => soft::add(a, b, format, how.rounding),
        Operation::Sub => soft::sub(a, b, format, how.rounding),
        Operation::Mul => soft::mul(a, b, format, how.rounding),
        Operation::Fma => soft::fma(a, b, c, format, how.rounding),
        Operation::Div | Operation::Reciprocal => soft::div(a, b, format, how.rounding),
        Operation::Sqrt => soft::sqrt(a, format, how.rounding),
    }
}

#[cfg(target_arch = "x86_64")]
mod vector {
    use std::arch::asm;
    use std::mem::MaybeUninit;

    use super::{Directed, Operation, ROUNDINGS, WARP};

    /// The control register with all exceptions masked, subnormal numbers kept and results rounded
    /// to nearest.
    const DEFAULT: u32 = 0x1f80;

    /// The bits of the control register that hold the rounding mode.
    const ROUNDING: u32 = 13;

    /// Defines a function that computes a register of this type.
    macro_rules! operations {
        ($name:ident, $bits:ty, $suffix:literal) => {
            /// # Safety
            /// The CPU has AVX2 and FMA.
            #[inline]
            #[target_feature(enable = "avx2,fma")]
            pub(super) unsafe fn $name(
                how: Directed,
                a: &[$bits; WARP],
                b: &[$bits; WARP],
                c: &[$bits; WARP],
            ) -> [$bits; WARP] {
                const BYTES: usize = size_of::<[$bits; WARP]>();
                let rounding = ROUNDINGS.iter().position(|known| *known == how.rounding).unwrap_or(0);
                let control = DEFAULT | (rounding as u32) << ROUNDING;
                let mut saved = DEFAULT;
                let mut result = MaybeUninit::<[$bits; WARP]>::uninit();
                /// `ymm0`, which holds `a`, becomes the result.
                macro_rules! compute {
                                                        ($instruction:expr) => {
                                                            // SAFETY: the loop reads 32 bytes of
                                                            // each source and writes 32 of the
                                                            // result, from the first to the last;
                                                            // the control register is restored
                                                            // before the compiler computes again.
                                                            unsafe {
                                                                asm!(
                                                                    "stmxcsr [{saved}]",
                                                                    "ldmxcsr [{control}]",
                                                                    "2:",
                                                                    "vmovups ymm0, [{a} + {at}]",
                                                                    $instruction,
                                                                    "vmovups [{result} + {at}], ymm0",
                                                                    "add {at}, 32",
                                                                    "cmp {at}, {bytes}",
                                                                    "jne 2b",
                                                                    "ldmxcsr [{saved}]",
                                                                    saved = in(reg) &raw mut saved,
                                                                    control = in(reg) &raw const control,
                                                                    a = in(reg) a,
                                                                    b = in(reg) b,
                                                                    c = in(reg) c,
                                                                    result = in(reg) result.as_mut_ptr(),
                                                                    at = inout(reg) 0usize => _,
                                                                    bytes = const BYTES,
                                                                    out("ymm0") _,
                                                                    out("ymm1") _,
                                                                    options(nostack),
                                                                )
                                                            }
                                                        };
                                                    }
                match how.operation {
                    Operation::Add => {
                        compute!(concat!("vaddp", $suffix, " ymm0, ymm0, [{b} + {at}] /* {c} */"))
                    }
                    Operation::Sub => {
                        compute!(concat!("vsubp", $suffix, " ymm0, ymm0, [{b} + {at}] /* {c} */"))
                    }
                    Operation::Mul => {
                        compute!(concat!("vmulp", $suffix, " ymm0, ymm0, [{b} + {at}] /* {c} */"))
                    }
                    Operation::Div | Operation::Reciprocal => {
                        compute!(concat!("vdivp", $suffix, " ymm0, ymm0, [{b} + {at}] /* {c} */"));
                    }
                    Operation::Sqrt => compute!(concat!("vsqrtp", $suffix, " ymm0, ymm0 /* {b} {c} */")),
                    Operation::Fma => compute!(concat!(
                        "vmovups ymm1, [{b} + {at}]\n",
                        "vfmadd213p",
                        $suffix,
                        " ymm0, ymm1, [{c} + {at}]"
                    )),
                }
                // SAFETY: every lane has been written.
                unsafe { result.assume_init() }
            }
        };
    }

    operations!(singles, u32, "s");
    operations!(doubles, u64, "d");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arithmetic::half::f16_to_f32;
    use apex_random::Random;

    /// A number of one lane: any bits, special ones, or of an exponent at which sums and products
    /// meet limits.
    fn number(random: &mut Random, format: Format) -> u64 {
        let bits = random.bits();
        let sign = if bits >> 62 & 1 != 0 { format.sign() } else { 0 };
        let one = soft::from_integer(1, format, Rounding::NearestEven);
        let magnitude = match random.bits() % 8 {
            0 => [0, 1, 2, one, format.infinity(), format.largest(), format.nan(), format.infinity() + 5]
                [(bits % 8) as usize],
            // Subnormal, close to the largest, around 1 with many or few digits.
            1 => bits & (one >> 8),
            2 => format.largest() - (bits & 0xffff),
            3 => one + (bits & 0xff),
            4 => one ^ bits & (one >> 5),
            _ => bits & (format.sign() - 1),
        };
        magnitude & (format.sign() - 1) | sign
    }

    fn all() -> Vec<Directed> {
        let mut all = Vec::new();
        for operation in OPERATIONS {
            for rounding in ROUNDINGS {
                for (ftz, sat) in [(false, false), (true, false), (false, true), (true, true)] {
                    all.extend(NARROW.map(|narrow| Directed { operation, rounding, ftz, sat, narrow }));
                }
            }
        }
        all
    }

    #[test]
    fn immediates_keep_everything() {
        assert!(all().iter().all(|how| Directed::unpack(how.pack()) == *how));
    }

    #[test]
    fn single_precision_is_the_definition() {
        let mut random = Random::new(77);
        for round in 0..12 {
            for how in all() {
                let [a, b, c]: [[u32; WARP]; 3] =
                    std::array::from_fn(|_| std::array::from_fn(|_| number(&mut random, soft::F32) as u32));
                // Sums that cancel, and all but.
                let c = if round % 2 == 0 { c } else { map(&a, |a| a ^ 1 << 31 ^ (round & 2) << 3) };
                let found = singles(&a, &b, &c, how.pack());
                for lane in 0..WARP {
                    let flushed =
                        |bits: u32| if how.ftz { flush(f32::from_bits(bits)).to_bits() } else { bits };
                    let widened = |bits: u32, narrow: Option<ScalarType>| match narrow {
                        None => bits,
                        Some(ScalarType::F16) => f16_to_f32(bits as u16).to_bits(),
                        Some(_) => (bits & 0xffff) << 16,
                    };
                    let second = if how.operation == Operation::Fma { how.narrow } else { None };
                    let first = flushed(widened(a[lane], how.narrow));
                    let (x, y) = match how.operation {
                        Operation::Reciprocal => (1f32.to_bits(), first),
                        _ => (first, flushed(widened(b[lane], second))),
                    };
                    let z = flushed(c[lane]);
                    let expected = defined(how, soft::F32, x.into(), y.into(), z.into()) as u32;
                    let expected = flushed(expected);
                    let expected =
                        if how.sat { saturate(f32::from_bits(expected)).to_bits() } else { expected };
                    assert_eq!(found[lane], expected, "{how:?} of {x:x}, {y:x}, {z:x}");
                }
            }
        }
    }

    #[test]
    fn double_precision_is_the_definition() {
        let mut random = Random::new(78);
        for round in 0..60 {
            for how in all().into_iter().filter(|how| !how.ftz && !how.sat && how.narrow.is_none()) {
                let [a, b, c]: [[u64; WARP]; 3] =
                    std::array::from_fn(|_| std::array::from_fn(|_| number(&mut random, soft::F64)));
                let c = if round % 2 == 0 { c } else { map(&a, |a| a ^ 1 << 63 ^ (round & 2) << 3) };
                let found = doubles(&a, &b, &c, how.pack());
                for lane in 0..WARP {
                    let (x, y) = match how.operation {
                        Operation::Reciprocal => (1f64.to_bits(), a[lane]),
                        _ => (a[lane], b[lane]),
                    };
                    let expected = defined(how, soft::F64, x, y, c[lane]);
                    assert_eq!(found[lane], expected, "{how:?} of {x:x}, {y:x}, {:x}", c[lane]);
                }
            }
        }
    }

    #[test]
    fn the_compilers_rounding_comes_back() {
        let how = Directed {
            operation: Operation::Add,
            rounding: Rounding::Up,
            ftz: false,
            sat: false,
            narrow: None,
        };
        singles(&[0x3f80_0000; WARP], &[1; WARP], &[0; WARP], how.pack());
        assert_eq!(std::hint::black_box(1f32) + std::hint::black_box(f32::from_bits(1)), 1.0);
    }
}
