//! Arithmetic in half precision on whole registers: `.f16`, `.bf16` and pairs of them.
//!
//! Sources become `.f32`, which is exact; the result is rounded once more, which equals one
//! rounding (see [`half`](crate::arithmetic::half)). CPUs with wide vectors compute sixteen halves
//! at a time with their own operations ([`vector`]), because compilers take loops over registers
//! apart into scalars here; the others compute as `half` does, and a test holds one against the
//! other. Stages are functions that are always inlined rather than closures, which would be
//! compiled for any CPU.

use crate::arithmetic::half::{
    bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16, odd_f32, odd_sum_f32, odd_sum_f64,
};
use crate::arithmetic::soft::Rounding;
use crate::registers::lanes::{WARP, map, wide_vectors, zip};

/// The operation to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Add,
    Sub,
    Mul,
    Fma,
}

const OPERATIONS: [Operation; 4] = [Operation::Add, Operation::Sub, Operation::Mul, Operation::Fma];

/// An operation on halves with its modifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Half {
    pub(crate) operation: Operation,
    /// `.bf16` rather than `.f16`.
    pub(crate) brain: bool,
    /// Both halves of a word.
    pub(crate) pair: bool,
    pub(crate) ftz: bool,
    pub(crate) sat: bool,
    pub(crate) relu: bool,
}

impl Half {
    /// As it travels in the immediate of a step.
    pub(crate) fn pack(self) -> u32 {
        let operation = OPERATIONS.iter().position(|known| *known == self.operation).unwrap_or(0) as u32;
        let flags = [self.brain, self.pair, self.ftz, self.sat, self.relu];
        flags.iter().enumerate().fold(operation, |bits, (index, &set)| bits | u32::from(set) << (2 + index))
    }

    #[inline(always)]
    fn unpack(bits: u32) -> Self {
        let flag = |index: u32| bits >> (2 + index) & 1 != 0;
        Half {
            operation: OPERATIONS[(bits & 3) as usize],
            brain: flag(0),
            pair: flag(1),
            ftz: flag(2),
            sat: flag(3),
            relu: flag(4),
        }
    }
}

type Words = [u32; WARP];

/// The operation that the immediate says, on the low halves of the words or on both.
#[inline(always)]
pub(crate) fn compute(a: &Words, b: &Words, c: &Words, immediate: u32) -> Words {
    let how = Half::unpack(immediate);
    #[cfg(target_arch = "x86_64")]
    if wide_vectors() {
        // SAFETY: the CPU has the features.
        return unsafe { vector::compute(a, b, c, how) };
    }
    plain(a, b, c, how)
}

/// [`compute`] for any CPU.
#[inline(never)]
fn plain(a: &Words, b: &Words, c: &Words, how: Half) -> Words {
    let first = halves(&part(a, 0), &part(b, 0), &part(c, 0), how);
    if !how.pair {
        return first;
    }
    let second = halves(&part(a, 16), &part(b, 16), &part(c, 16), how);
    zip(&first, &second, |low, high| low | high << 16)
}

/// The operation on halves, each at the bottom of a word.
#[inline(always)]
fn halves(a: &Words, b: &Words, c: &Words, how: Half) -> Words {
    let result = if how.brain { brain(a, b, c, how.operation) } else { half(a, b, c, how) };
    let infinity = if how.brain { 0x7f80 } else { 0x7c00 };
    // `.relu`: NaN becomes the hardware's, negative numbers +0. `.sat`: into [0, 1], NaN to 0.
    match (how.sat, how.relu) {
        (false, false) => result,
        (true, _) => map(&result, |x| if x > infinity { 0 } else { x.min(0x3c00) }),
        (false, true) => map(&result, |x| {
            let positive = if x & 0x8000 != 0 { 0 } else { x };
            if x & 0x7fff > infinity { 0x7fff } else { positive }
        }),
    }
}

#[inline(always)]
fn half(a: &Words, b: &Words, c: &Words, how: Half) -> Words {
    let (a, b) = (half_source(a, how.ftz), half_source(b, how.ftz));
    let sum = match how.operation {
        Operation::Add => zip(&a, &b, |a, b| a + b),
        Operation::Sub => zip(&a, &b, |a, b| a - b),
        Operation::Mul => zip(&a, &b, |a, b| a * b),
        // The product is exact.
        Operation::Fma => zip(&zip(&a, &b, |a, b| a * b), &half_source(c, how.ftz), odd_sum_f32),
    };
    let result = narrowed(&sum);
    if how.ftz { flushed(&result) } else { result }
}

#[inline(always)]
fn half_source(halves: &Words, ftz: bool) -> [f32; WARP] {
    widened(&if ftz { flushed(halves) } else { *halves })
}

#[inline(always)]
fn brain_source(halves: &Words) -> [f32; WARP] {
    map(halves, |half| bf16_to_f32(half as u16))
}

#[inline(always)]
fn brain(a: &Words, b: &Words, c: &Words, operation: Operation) -> Words {
    let (a, b) = (brain_source(a), brain_source(b));
    let sum = match operation {
        Operation::Add => zip(&a, &b, |a, b| a + b),
        Operation::Sub => zip(&a, &b, |a, b| a - b),
        // `.f64` has the exponents for the exact product.
        Operation::Mul => zip(&a, &b, |a, b| odd_f32(f64::from(a) * f64::from(b))),
        Operation::Fma => {
            let product = zip(&a, &b, |a, b| f64::from(a) * f64::from(b));
            zip(&product, &brain_source(c), |product, c| odd_f32(odd_sum_f64(product, c.into())))
        }
    };
    map(&sum, |x| f32_to_bf16(x).into())
}

/// `f`, which is computed in `.f32`, of the low halves of the words or of both.
#[inline(always)]
pub(crate) fn on_halves<const BRAIN: bool, const PAIR: bool>(
    a: &Words,
    f: impl Fn(f32) -> f32 + Copy,
) -> Words {
    let low = half_by::<BRAIN>(&part(a, 0), f);
    if PAIR { zip(&low, &half_by::<BRAIN>(&part(a, 16), f), |low, high| low | high << 16) } else { low }
}

/// `f`, which is computed in `.f32`, of halves at the bottom of the words.
#[inline(always)]
fn half_by<const BRAIN: bool>(a: &Words, f: impl Fn(f32) -> f32 + Copy) -> Words {
    if BRAIN {
        map(&brain_source(a), |value| f32_to_bf16(f(value)).into())
    } else {
        narrowed(&map(&widened(a), f))
    }
}

/// The halves that begin at a bit, each at the bottom of a word.
#[inline(always)]
fn part(words: &Words, from: u32) -> Words {
    map(words, |word| word >> from & 0xffff)
}

/// `.ftz` of `.f16`s in both halves of the words.
#[inline(always)]
pub(crate) fn flushed(words: &Words) -> Words {
    map(words, |word| {
        let low = if word & 0x7c00 == 0 { word & !0x3ff } else { word };
        if low & 0x7c00_0000 == 0 { low & !0x3ff_0000 } else { low }
    })
}

/// `.f16`s, each at the bottom of a word, as `.f32`.
#[inline(always)]
pub(crate) fn widened(halves: &Words) -> [f32; WARP] {
    #[cfg(target_arch = "x86_64")]
    if wide_vectors() {
        // SAFETY: the CPU has the features.
        return unsafe { vector::widened(halves) };
    }
    map(halves, |half| f16_to_f32(half as u16))
}

/// `.f32` as `.f16`s, to nearest even, each at the bottom of a word.
#[inline(always)]
pub(crate) fn narrowed(values: &[f32; WARP]) -> Words {
    match narrowed_by(values, Rounding::NearestEven) {
        Some(halves) => halves,
        None => map(values, |value| f32_to_f16(value).into()),
    }
}

/// `.f32` as `.f16`s, rounded in this direction, likewise; none where the CPU has no such
/// operation.
#[inline(always)]
pub(crate) fn narrowed_by(values: &[f32; WARP], rounding: Rounding) -> Option<Words> {
    #[cfg(target_arch = "x86_64")]
    if wide_vectors() {
        use std::arch::x86_64::*;
        // SAFETY: the CPU has the features.
        return unsafe {
            Some(match rounding {
                Rounding::NearestEven => vector::narrowed::<_MM_FROUND_TO_NEAREST_INT>(values),
                Rounding::Zero => vector::narrowed::<_MM_FROUND_TO_ZERO>(values),
                Rounding::Down => vector::narrowed::<_MM_FROUND_TO_NEG_INF>(values),
                Rounding::Up => vector::narrowed::<_MM_FROUND_TO_POS_INF>(values),
                Rounding::NearestAway => return None,
            })
        };
    }
    let _ = (values, rounding);
    None
}

#[cfg(target_arch = "x86_64")]
pub(in crate::arithmetic) mod vector {
    use std::arch::x86_64::*;
    use std::mem::MaybeUninit;

    use super::{Half, Operation, WARP, Words, plain};
    use crate::registers::pattern::{PART, PARTS};

    /// The operation on the low halves of the words or on both.
    ///
    /// # Safety
    /// The CPU has AVX2, F16C and FMA.
    #[inline]
    #[target_feature(enable = "avx2,f16c,fma")]
    pub(super) unsafe fn compute(a: &Words, b: &Words, c: &Words, how: Half) -> Words {
        let mut words = MaybeUninit::<Words>::uninit();
        let mut suspect = _mm256_setzero_si256();
        let wanted = _mm256_set1_epi32(if how.pair { -1 } else { 0xffff });
        for part in 0..PARTS {
            // SAFETY: eight lanes from a multiple of eight lie inside the arrays.
            let [a, b, c] = [a, b, c]
                .map(|words| unsafe { _mm256_loadu_si256(words.as_ptr().add(part * PART).cast()) })
                .map(|words| _mm256_and_si256(words, wanted));
            let result = if how.brain {
                let (result, ties) = brain(a, b, c, how.operation);
                suspect = _mm256_or_si256(suspect, ties);
                result
            } else {
                half(a, b, c, how)
            };
            let result = _mm256_and_si256(limited(result, how), wanted);
            // SAFETY: as above.
            unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast::<u32>().add(part * PART).cast(), result) };
        }
        if _mm256_testz_si256(suspect, suspect) == 0 {
            return plain(a, b, c, how);
        }
        // SAFETY: all lanes have been written.
        unsafe { words.assume_init() }
    }

    /// `.sat` and `.relu` of sixteen halves whose NaNs are all `0x7fff`.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn limited(halves: __m256i, how: Half) -> __m256i {
        let zero = _mm256_setzero_si256();
        match (how.sat, how.relu) {
            (false, false) => halves,
            // As integers, negative numbers are below +0, and a NaN is the greatest.
            (false, true) => _mm256_max_epi16(halves, zero),
            (true, _) => {
                let limited = _mm256_min_epi16(_mm256_max_epi16(halves, zero), _mm256_set1_epi16(0x3c00));
                _mm256_andnot_si256(_mm256_cmpeq_epi16(halves, _mm256_set1_epi16(0x7fff)), limited)
            }
        }
    }

    /// The operation on sixteen `.f16`s.
    #[inline]
    #[target_feature(enable = "avx2,f16c,fma")]
    fn half(a: __m256i, b: __m256i, c: __m256i, how: Half) -> __m256i {
        let (a, b) = if how.ftz { (flushed(a), flushed(b)) } else { (a, b) };
        let c = if how.ftz && how.operation == Operation::Fma { flushed(c) } else { c };
        let low = eight(
            _mm256_castsi256_si128(a),
            _mm256_castsi256_si128(b),
            _mm256_castsi256_si128(c),
            how.operation,
        );
        let high = eight(
            _mm256_extracti128_si256::<1>(a),
            _mm256_extracti128_si256::<1>(b),
            _mm256_extracti128_si256::<1>(c),
            how.operation,
        );
        let result = _mm256_set_m128i(high, low);
        let magnitude = _mm256_and_si256(result, _mm256_set1_epi16(0x7fff));
        let nan = _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(0x7c00));
        let result = _mm256_blendv_epi8(result, _mm256_set1_epi16(0x7fff), nan);
        if how.ftz { flushed(result) } else { result }
    }

    /// The operation on eight `.f16`s; NaNs are those of the CPU.
    #[inline]
    #[target_feature(enable = "avx2,f16c,fma")]
    fn eight(a: __m128i, b: __m128i, c: __m128i, operation: Operation) -> __m128i {
        let (a, b) = (_mm256_cvtph_ps(a), _mm256_cvtph_ps(b));
        let result = match operation {
            Operation::Add => _mm256_add_ps(a, b),
            Operation::Sub => _mm256_sub_ps(a, b),
            Operation::Mul => _mm256_mul_ps(a, b),
            Operation::Fma => fused(a, b, _mm256_cvtph_ps(c)),
        };
        _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(result)
    }

    /// `a * b + c`, which rounds to the right `.f16`.
    ///
    /// The sum is rounded to `.f32` once. Another rounding goes wrong only where that ended in the
    /// middle of two `.f16`s: elsewhere the exact sum lies on the same side of the middle. There,
    /// and below the normal `.f16`s, whose middles are elsewhere, it is rounded to odd instead.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn fused(a: __m256, b: __m256, c: __m256) -> __m256 {
        let sum = _mm256_fmadd_ps(a, b, c);
        let bits = _mm256_castps_si256(sum);
        let middle = _mm256_set1_epi32(0x1000_u32.wrapping_shl(19) as i32);
        let tie = _mm256_cmpeq_epi32(_mm256_slli_epi32::<19>(bits), middle);
        // Twice the magnitude, as an integer, of a number other than zero and less than 2^-14.
        let twice = _mm256_sub_epi32(_mm256_slli_epi32::<1>(bits), _mm256_set1_epi32(1));
        let least = _mm256_set1_epi32((2 * 0x3880_0000_u32 - 2) as i32);
        let subnormal = _mm256_cmpeq_epi32(_mm256_min_epu32(twice, least), twice);
        let suspect = _mm256_or_si256(tie, subnormal);
        // The product is exact.
        if _mm256_testz_si256(suspect, suspect) != 0 { sum } else { odd_sum(_mm256_mul_ps(a, b), c) }
    }

    /// [`odd_sum_f32`](super::odd_sum_f32) of numbers so small that no sum of finite ones
    /// overflows.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn odd_sum(a: __m256, b: __m256) -> __m256 {
        let sum = _mm256_add_ps(a, b);
        let part = _mm256_sub_ps(sum, a);
        let lost = _mm256_add_ps(_mm256_sub_ps(a, _mm256_sub_ps(sum, part)), _mm256_sub_ps(b, part));
        // Of an infinite sum, a NaN is lost, which does not compare.
        let inexact = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_NEQ_OQ>(lost, _mm256_setzero_ps()));
        // Towards zero if the sum was rounded away from it; the last bit is set in any case.
        let away = _mm256_srai_epi32::<31>(_mm256_castps_si256(_mm256_xor_ps(lost, sum)));
        let bits = _mm256_add_epi32(_mm256_castps_si256(sum), _mm256_and_si256(away, inexact));
        _mm256_castsi256_ps(_mm256_or_si256(bits, _mm256_srli_epi32::<31>(inexact)))
    }

    /// `.ftz` of sixteen `.f16`s.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(in crate::arithmetic) fn flushed(halves: __m256i) -> __m256i {
        let exponent = _mm256_and_si256(halves, _mm256_set1_epi16(0x7c00));
        let subnormal = _mm256_cmpeq_epi16(exponent, _mm256_setzero_si256());
        _mm256_andnot_si256(_mm256_and_si256(subnormal, _mm256_set1_epi16(0x3ff)), halves)
    }

    /// The operation on sixteen `.bf16`s, and where a fused multiply-add may have been rounded
    /// wrongly.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn brain(a: __m256i, b: __m256i, c: __m256i, operation: Operation) -> (__m256i, __m256i) {
        let upper = _mm256_set1_epi32(0xffff_0000_u32 as i32);
        let low = |halves| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(halves));
        let high = |halves| _mm256_castsi256_ps(_mm256_and_si256(halves, upper));
        let (first, first_ties) = brain_eight(low(a), low(b), low(c), operation);
        let (second, second_ties) = brain_eight(high(a), high(b), high(c), operation);
        let result = _mm256_or_si256(_mm256_srli_epi32::<16>(first), _mm256_and_si256(second, upper));
        (result, _mm256_or_si256(first_ties, second_ties))
    }

    /// The operation on eight `.bf16`s in `.f32`, with the result in the upper half of each word,
    /// and where a fused multiply-add may have been rounded wrongly.
    ///
    /// - A product has 16 significant bits, so `.f32` only rounds those below 2^-134: these are
    ///   zero as `.bf16`, and a product that becomes 2^-134 too, for half of the least `.bf16` goes
    ///   to zero, which is even.
    /// - A fused multiply-add is rounded to `.f32` once. The second rounding goes wrong only where
    ///   the first ends in the middle of two `.bf16`s, which are all `.f32`, and was not exact:
    ///   elsewhere the exact sum lies on the same side of the middle.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn brain_eight(a: __m256, b: __m256, c: __m256, operation: Operation) -> (__m256i, __m256i) {
        let result = match operation {
            Operation::Add => _mm256_add_ps(a, b),
            Operation::Sub => _mm256_sub_ps(a, b),
            Operation::Mul => _mm256_mul_ps(a, b),
            Operation::Fma => _mm256_fmadd_ps(a, b, c),
        };
        let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(result, result));
        let bits = _mm256_castps_si256(result);
        let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
        let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        let rounded = _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fff_0000), nan);
        let ties = match operation {
            Operation::Fma => {
                let middle = _mm256_set1_epi32(0x8000_0000_u32 as i32);
                let tie = _mm256_cmpeq_epi32(_mm256_slli_epi32::<16>(bits), middle);
                if _mm256_testz_si256(tie, tie) != 0 { tie } else { _mm256_and_si256(tie, inexact(a, b, c)) }
            }
            _ => _mm256_setzero_si256(),
        };
        (rounded, ties)
    }

    /// Finds lanes in which `a * b + c` of `.bf16`s may be inexact in `.f32`: the sum of the
    /// product, which is exact unless it is tiny, loses bits or is not a finite number.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn inexact(a: __m256, b: __m256, c: __m256) -> __m256i {
        let product = _mm256_mul_ps(a, b);
        let magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0), product);
        let tiny = _mm256_cmp_ps::<_CMP_LT_OQ>(magnitude, _mm256_set1_ps(f32::MIN_POSITIVE));
        let sum = _mm256_add_ps(product, c);
        let part = _mm256_sub_ps(sum, product);
        let lost = _mm256_add_ps(_mm256_sub_ps(product, _mm256_sub_ps(sum, part)), _mm256_sub_ps(c, part));
        let loses = _mm256_cmp_ps::<_CMP_NEQ_UQ>(lost, _mm256_setzero_ps());
        _mm256_castps_si256(_mm256_or_ps(tiny, loses))
    }

    /// # Safety
    /// The CPU has AVX2 and F16C.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub(super) unsafe fn widened(halves: &Words) -> [f32; WARP] {
        let mut values = MaybeUninit::<[f32; WARP]>::uninit();
        for part in 0..PARTS {
            // SAFETY: eight lanes from a multiple of eight lie inside the arrays.
            unsafe {
                let from = halves.as_ptr().add(part * PART).cast::<__m128i>();
                let eight = _mm_packus_epi32(_mm_loadu_si128(from), _mm_loadu_si128(from.add(1)));
                _mm256_storeu_ps(values.as_mut_ptr().cast::<f32>().add(part * PART), _mm256_cvtph_ps(eight));
            }
        }
        // SAFETY: all lanes have been written.
        unsafe { values.assume_init() }
    }

    /// # Safety
    /// The CPU has AVX2 and F16C.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub(super) unsafe fn narrowed<const ROUNDING: i32>(values: &[f32; WARP]) -> Words {
        let mut halves = MaybeUninit::<Words>::uninit();
        for part in 0..PARTS {
            // SAFETY: eight lanes from a multiple of eight lie inside the arrays.
            unsafe {
                let eight = _mm256_loadu_ps(values.as_ptr().add(part * PART));
                let found = _mm256_cvtepu16_epi32(_mm256_cvtps_ph::<ROUNDING>(eight));
                let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(eight, eight));
                let found = _mm256_blendv_epi8(found, _mm256_set1_epi32(0x7fff), nan);
                _mm256_storeu_si256(halves.as_mut_ptr().cast::<u32>().add(part * PART).cast(), found);
            }
        }
        // SAFETY: all lanes have been written.
        unsafe { halves.assume_init() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arithmetic::soft::{self, BF16, F16, Format, Rounding};
    use apex_random::Random;

    #[test]
    fn conversions_are_those_of_single_numbers() {
        for first in (0..=0xffffu32).step_by(WARP) {
            let halves: Words = std::array::from_fn(|lane| first + lane as u32);
            let wide = widened(&halves);
            for lane in 0..WARP {
                let expected = f16_to_f32(halves[lane] as u16);
                let same = wide[lane].to_bits() == expected.to_bits();
                assert!(same || wide[lane].is_nan() && expected.is_nan(), "{:x}", halves[lane]);
            }
        }
        let mut random = Random::new(3);
        for _ in 0..20_000 {
            let values: [f32; WARP] = std::array::from_fn(|lane| {
                let bits = random.bits() as u32;
                // Every other one within the exponents of halves.
                f32::from_bits(if lane % 2 == 0 { bits } else { bits & 0x8fff_ffff | 0x3000_0000 })
            });
            assert_eq!(narrowed(&values), map(&values, |value| u32::from(f32_to_f16(value))));
        }
    }

    /// The operation on one half, by the definition.
    fn defined(how: Half, [a, b, c]: [u64; 3]) -> u64 {
        let format: Format = if how.brain { BF16 } else { F16 };
        let flush = |half: u64| if how.ftz && half & 0x7c00 == 0 { half & 0x8000 } else { half };
        let nearest = Rounding::NearestEven;
        let [a, b, c] = [a, b, c].map(flush);
        let result = flush(match how.operation {
            Operation::Add => soft::add(a, b, format, nearest),
            Operation::Sub => soft::sub(a, b, format, nearest),
            Operation::Mul => soft::mul(a, b, format, nearest),
            Operation::Fma => soft::fma(a, b, c, format, nearest),
        });
        match (how.sat, how.relu) {
            (true, _) if format.is_nan(result) || result & 0x8000 != 0 => 0,
            (true, _) => result.min(0x3c00),
            (_, true) if format.is_nan(result) => 0x7fff,
            (_, true) if result & 0x8000 != 0 => 0,
            _ => result,
        }
    }

    #[test]
    fn every_operation_is_the_definition() {
        let mut random = Random::new(21);
        for operation in OPERATIONS {
            for flags in 0..32u32 {
                let flag = |index: u32| flags >> index & 1 != 0;
                let (brain, pair, ftz, sat, relu) = (flag(0), flag(1), flag(2), flag(3), flag(4));
                if brain && (ftz || sat) {
                    continue;
                }
                let how = Half { operation, brain, pair, ftz, sat, relu };
                assert_eq!(Half::unpack(how.pack()), how);
                for round in 0..200 {
                    let mut number = || {
                        let bits = random.bits() as u32;
                        // With exponents that make sums cancel; special ones; any.
                        match round % 6 {
                            0 => bits & 0x87ff_87ff | 0x3800_3800,
                            1 => bits & 0x83ff_83ff | 0x7c00_0000 | bits >> 16 & 0x7c00,
                            // Products of `.bf16` around the least subnormal number; sums in the
                            // middle of two numbers.
                            2 => bits & 0x80ff_80ff | 0x1e00_1e00,
                            3 => {
                                let [low, high] = [bits, bits >> 16]
                                    .map(|bits| [0x3f88, 0x3f88, 0x3080, 0xb080][bits as usize & 3]);
                                low | high << 16
                            }
                            _ => bits,
                        }
                    };
                    let [a, b, c]: [Words; 3] = std::array::from_fn(|_| std::array::from_fn(|_| number()));
                    let found = compute(&a, &b, &c, how.pack());
                    assert_eq!(found, plain(&a, &b, &c, how), "{how:?}");
                    for lane in 0..WARP {
                        let at = |shift: u32| {
                            defined(how, [a, b, c].map(|words| u64::from(words[lane] >> shift & 0xffff)))
                        };
                        let expected = at(0) | if pair { at(16) << 16 } else { 0 };
                        let operands = [a[lane], b[lane], c[lane]];
                        assert_eq!(u64::from(found[lane]), expected, "{how:?} of {operands:x?}");
                    }
                }
            }
        }
    }
}
