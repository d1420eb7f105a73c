//! `min` and `max` of `.f16`, `.bf16` and pairs of them, on whole registers, with all their
//! modifiers.
//!
//! Halves are compared as integers, for which the order of their bits is made the order of numbers:
//! -0 below +0, and negative numbers turned round. A NaN loses against a number unless `.NaN` is
//! given. One handler serves all modifiers, which are masks here; a test holds vectors against the
//! definition on single halves.

use crate::registers::lanes::{WARP, wide_vectors, zip};

/// The operation, with its modifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extremum {
    /// `max` rather than `min`.
    pub(crate) max: bool,
    /// `.bf16` rather than `.f16`.
    pub(crate) brain: bool,
    /// Both halves of a word.
    pub(crate) pair: bool,
    /// `.NaN`: a NaN wins.
    pub(crate) nan: bool,
    /// `.xorsign.abs`: of the magnitudes, with the signs multiplied.
    pub(crate) xorsign: bool,
    pub(crate) ftz: bool,
}

/// The magnitude of a half.
const MAGNITUDE: u16 = 0x7fff;

/// The NaN of either format.
const NAN: u16 = 0x7fff;

impl Extremum {
    /// As it travels in the immediate of a step.
    pub(crate) fn pack(self) -> u32 {
        let flags = [self.max, self.brain, self.pair, self.nan, self.xorsign, self.ftz];
        flags.iter().enumerate().fold(0, |bits, (index, &set)| bits | u32::from(set) << index)
    }

    #[inline(always)]
    fn unpack(bits: u32) -> Self {
        let flag = |index: u32| bits >> index & 1 != 0;
        let [max, brain, pair, nan, xorsign, ftz] = [flag(0), flag(1), flag(2), flag(3), flag(4), flag(5)];
        Extremum { max, brain, pair, nan, xorsign, ftz }
    }

    #[inline(always)]
    fn infinity(self) -> u16 {
        if self.brain { 0x7f80 } else { 0x7c00 }
    }
}

type Words = [u32; WARP];

/// The operation that the immediate says, on the low halves of the words or on both.
#[inline(always)]
pub(crate) fn compute(a: &Words, b: &Words, immediate: u32) -> Words {
    let how = Extremum::unpack(immediate);
    #[cfg(target_arch = "x86_64")]
    if wide_vectors() {
        // SAFETY: the CPU has AVX2.
        return unsafe { vector::compute(a, b, how) };
    }
    plain(a, b, how)
}

/// [`compute`] for any CPU.
fn plain(a: &Words, b: &Words, how: Extremum) -> Words {
    zip(a, b, |a, b| {
        let part = |shift: u32| u32::from(of_halves((a >> shift) as u16, (b >> shift) as u16, how)) << shift;
        part(0) | if how.pair { part(16) } else { 0 }
    })
}

/// The operation on two halves.
fn of_halves(a: u16, b: u16, how: Extremum) -> u16 {
    let flushed = |half: u16| if how.ftz && half & 0x7c00 == 0 { half & !MAGNITUDE } else { half };
    let (a, b) = (flushed(a), flushed(b));
    let [a_is_nan, b_is_nan] = [a, b].map(|half| half & MAGNITUDE > how.infinity());
    let (sign, a, b) =
        if how.xorsign { ((a ^ b) & !MAGNITUDE, a & MAGNITUDE, b & MAGNITUDE) } else { (0, a, b) };
    let order = |half: u16| (half ^ ((half as i16 >> 15) as u16 & MAGNITUDE)) as i16;
    let first = if how.max { order(a) > order(b) } else { order(a) < order(b) };
    match (a_is_nan, b_is_nan) {
        (true, true) => NAN,
        (true, _) | (_, true) if how.nan => NAN,
        (true, false) => b | sign,
        (false, true) => a | sign,
        (false, false) => (if first { a } else { b }) | sign,
    }
}

#[cfg(target_arch = "x86_64")]
mod vector {
    use std::arch::x86_64::*;
    use std::mem::MaybeUninit;

    use super::{Extremum, MAGNITUDE, NAN, WARP, Words};
    use crate::arithmetic::half_arithmetic::vector::flushed;
    use crate::registers::pattern::{PART, PARTS};

    /// The operation on the low halves of the words or on both.
    ///
    /// # Safety
    /// The CPU has AVX2.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn compute(a: &Words, b: &Words, how: Extremum) -> Words {
        let mut words = MaybeUninit::<[u32; WARP]>::uninit();
        let wanted = _mm256_set1_epi32(if how.pair { -1 } else { 0xffff });
        for part in 0..PARTS {
            // SAFETY: eight lanes from a multiple of eight lie inside the arrays.
            let [a, b] =
                [a, b].map(|words| unsafe { _mm256_loadu_si256(words.as_ptr().add(part * PART).cast()) });
            let result = _mm256_and_si256(sixteen(a, b, how), wanted);
            // SAFETY: as above.
            unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast::<u32>().add(part * PART).cast(), result) };
        }
        // SAFETY: all lanes have been written.
        unsafe { words.assume_init() }
    }

    /// The operation on sixteen halves.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn sixteen(a: __m256i, b: __m256i, how: Extremum) -> __m256i {
        let magnitude = _mm256_set1_epi16(MAGNITUDE as i16);
        let (a, b) = if how.ftz { (flushed(a), flushed(b)) } else { (a, b) };
        let infinity = _mm256_set1_epi16(how.infinity() as i16);
        let [a_is_nan, b_is_nan] =
            [a, b].map(|halves| _mm256_cmpgt_epi16(_mm256_and_si256(halves, magnitude), infinity));
        let taken = _mm256_set1_epi16(if how.xorsign { !MAGNITUDE as i16 } else { 0 });
        let sign = _mm256_and_si256(_mm256_xor_si256(a, b), taken);
        let [a, b] = [a, b].map(|halves| _mm256_andnot_si256(taken, halves));
        let chosen = if how.max {
            _mm256_max_epi16(ordered(a), ordered(b))
        } else {
            _mm256_min_epi16(ordered(a), ordered(b))
        };
        let number = _mm256_blendv_epi8(_mm256_blendv_epi8(ordered(chosen), b, a_is_nan), a, b_is_nan);
        let no_number =
            if how.nan { _mm256_or_si256(a_is_nan, b_is_nan) } else { _mm256_and_si256(a_is_nan, b_is_nan) };
        _mm256_blendv_epi8(_mm256_or_si256(number, sign), _mm256_set1_epi16(NAN as i16), no_number)
    }

    /// Halves as integers that have their order, and back.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn ordered(halves: __m256i) -> __m256i {
        _mm256_xor_si256(halves, _mm256_srli_epi16::<1>(_mm256_srai_epi16::<15>(halves)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arithmetic::half::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
    use crate::arithmetic::numbers::{maximum, minimum};
    use apex_random::Random;

    /// The operation on one half by way of `.f32`.
    fn defined(a: u16, b: u16, how: Extremum) -> u16 {
        let flushed = |half: u16| if how.ftz && half & 0x7c00 == 0 { half & 0x8000 } else { half };
        let wide = |half: u16| if how.brain { bf16_to_f32(half) } else { f16_to_f32(half) };
        let (a, b) = (wide(flushed(a)), wide(flushed(b)));
        let extremum = if how.max { maximum } else { minimum };
        let value = if how.xorsign {
            let value = extremum(a.abs(), b.abs());
            if a.is_sign_negative() != b.is_sign_negative() { -value } else { value }
        } else {
            extremum(a, b)
        };
        let value = if how.nan && (a.is_nan() || b.is_nan()) { f32::NAN } else { value };
        if how.brain { f32_to_bf16(value) } else { f32_to_f16(value) }
    }

    #[test]
    fn every_extremum_is_the_definition() {
        let mut random = Random::new(31);
        let mut word = || {
            let bits = random.bits();
            let special =
                [0, 0x8000, 1, 0x8001, 0x3ff, 0x83ff, 0x7c00, 0xfc00, 0x7f80, 0xff80, 0x7c01, 0xffff];
            let half = |bits: u64| special.get(bits as usize % 24).copied().unwrap_or((bits >> 8) as u16);
            u32::from(half(bits)) | u32::from(half(bits >> 32)) << 16
        };
        for flags in 0..64 {
            let how = Extremum::unpack(flags);
            assert_eq!(how.pack(), flags);
            if how.brain && how.ftz {
                continue;
            }
            for _ in 0..400 {
                let [a, b]: [Words; 2] = std::array::from_fn(|_| std::array::from_fn(|_| word()));
                let found = compute(&a, &b, flags);
                assert_eq!(found, plain(&a, &b, how), "{how:?}");
                for lane in 0..WARP {
                    let part = |shift: u32| {
                        u32::from(defined((a[lane] >> shift) as u16, (b[lane] >> shift) as u16, how)) << shift
                    };
                    let expected = part(0) | if how.pair { part(16) } else { 0 };
                    assert_eq!(found[lane], expected, "{how:?} of {:x}, {:x}", a[lane], b[lane]);
                }
            }
        }
    }
}
