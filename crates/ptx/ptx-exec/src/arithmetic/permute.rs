//! `prmt`: combines bytes of two words.

use ptx_lower::scalar::{permute_bytes, selectors};

use crate::registers::lanes::{Register, WARP, wide_vectors};

/// `prmt` without a mode: the selectors are the four lowest groups of four bits of `c`.
#[inline(always)]
pub(crate) fn bytes(a: &Register<u32>, b: &Register<u32>, c: &Register<u32>) -> Register<u32> {
    #[cfg(target_arch = "x86_64")]
    if wide_vectors() {
        // SAFETY: the CPU has the features.
        return unsafe { vector::bytes(a, b, c) };
    }
    plain(a, b, c)
}

fn plain(a: &Register<u32>, b: &Register<u32>, c: &Register<u32>) -> Register<u32> {
    std::array::from_fn(|lane| permute_bytes(a[lane], b[lane], selectors(c[lane], None)))
}

#[cfg(target_arch = "x86_64")]
mod vector {
    use std::arch::x86_64::*;

    use super::{Register, WARP};
    use crate::registers::pattern::{PART, PARTS};

    /// # Safety
    /// The CPU has AVX2.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn bytes(a: &Register<u32>, b: &Register<u32>, c: &Register<u32>) -> Register<u32> {
        let mut result = [0; WARP];
        for part in 0..PARTS {
            // SAFETY: eight lanes from a multiple of eight lie inside the arrays.
            let [a, b, c] =
                [a, b, c].map(|words| unsafe { _mm256_loadu_si256(words.as_ptr().add(part * PART).cast()) });
            let permuted = eight(a, b, c);
            // SAFETY: as above.
            unsafe { _mm256_storeu_si256(result.as_mut_ptr().add(part * PART).cast(), permuted) };
        }
        result
    }

    /// The results of eight lanes.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn eight(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
        // One selector for each byte.
        let c = _mm256_and_si256(c, _mm256_set1_epi32(0xffff));
        let c = _mm256_or_si256(c, _mm256_slli_epi32::<8>(c));
        let c = _mm256_and_si256(c, _mm256_set1_epi32(0x00ff_00ff));
        let c = _mm256_or_si256(c, _mm256_slli_epi32::<4>(c));
        let c = _mm256_and_si256(c, _mm256_set1_epi32(0x0f0f_0f0f));
        let index = _mm256_and_si256(c, _mm256_set1_epi8(7));
        // The sources of two lanes lie in sixteen bytes, of the second from the eighth on.
        let second = _mm256_set1_epi64x(0x0808_0808_0000_0000);
        let pick = |sources, index| _mm256_shuffle_epi8(sources, _mm256_add_epi8(index, second));
        // Lanes 0 and 1 of each half have their selectors beside each other in words 0 and 1; lanes
        // 2 and 3 in 2 and 3.
        let low = pick(_mm256_unpacklo_epi32(a, b), index);
        let high = pick(_mm256_unpackhi_epi32(a, b), _mm256_srli_si256::<8>(index));
        let picked = _mm256_unpacklo_epi64(low, high);
        // The top bit of a selector asks for copies of the sign.
        let signs = _mm256_cmpgt_epi8(_mm256_setzero_si256(), picked);
        _mm256_blendv_epi8(picked, signs, _mm256_slli_epi16::<4>(c))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apex_random::Random;

    #[test]
    fn vectors_permute_as_single_words_do() {
        let mut random = Random::new(1);
        let mut random = || random.bits() as u32;
        for _ in 0..2_000 {
            let [a, b, c]: [Register<u32>; 3] = std::array::from_fn(|_| std::array::from_fn(|_| random()));
            assert_eq!(bytes(&a, &b, &c), plain(&a, &b, &c), "{a:x?} {b:x?} {c:x?}");
        }
    }
}
