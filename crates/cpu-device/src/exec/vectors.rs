//! Operations on 32 lanes that have to be fast, and that compilers make a hash of: arithmetic on addresses, and writing
//! some lanes of a register.
//!
//! Unrolled and taken apart into scalars these loops cost ten times as much. So they are written with AVX2's own
//! operations, and once more plainly for CPUs without; a test holds one against the other.

use super::lanes::{WARP, wide_vectors};

/// The addresses of the lanes.
pub(super) type Addresses = [u64; WARP];

/// What is known of the addresses of a warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Survey {
    /// Whether any lane's access leaves the window or is misaligned.
    pub(super) suspicious: bool,
    /// Whether all lanes have the same address.
    pub(super) uniform: bool,
    /// Whether each lane's access follows that of the lane before it.
    pub(super) consecutive: bool,
}

/// `base + offset` modulo 2^32, plus `origin`, in each lane.
#[inline(always)]
pub(super) fn offset_words(base: &[u32; WARP], offset: u32, origin: u64, addresses: &mut Addresses) {
    #[cfg(target_arch = "x86_64")]
    if wide_vectors() {
        // SAFETY: the CPU has AVX2.
        return unsafe { wide::offset_words(base, offset, origin, addresses) };
    }
    plain::offset_words(base, offset, origin, addresses);
}

/// `base + offset` in each lane.
#[inline(always)]
pub(super) fn offset_longs(base: &Addresses, offset: u64, addresses: &mut Addresses) {
    #[cfg(target_arch = "x86_64")]
    if wide_vectors() {
        // SAFETY: the CPU has AVX2.
        return unsafe { wide::offset_longs(base, offset, addresses) };
    }
    plain::offset_longs(base, offset, addresses);
}

/// Puts the lanes of `mask` of `values` into `register`.
#[inline(never)]
pub(super) fn blend_words(register: &mut [u32; WARP], values: &[u32; WARP], mask: u32) {
    #[cfg(target_arch = "x86_64")]
    if wide_vectors() {
        // SAFETY: the CPU has AVX2.
        return unsafe { wide::blend_words(register, values, mask) };
    }
    plain::blend(register, values, mask);
}

/// Puts the lanes of `mask` of `values` into `register`.
#[inline(never)]
pub(super) fn blend_longs(register: &mut [u64; WARP], values: &[u64; WARP], mask: u32) {
    #[cfg(target_arch = "x86_64")]
    if wide_vectors() {
        // SAFETY: the CPU has AVX2.
        return unsafe { wide::blend_longs(register, values, mask) };
    }
    plain::blend(register, values, mask);
}

/// The 32 bits that each lane's address plus `offset` points to.
///
/// # Safety
/// They may be read, and the addresses are aligned.
#[inline(always)]
pub(super) unsafe fn gather_words(addresses: &Addresses, offset: usize) -> [u32; WARP] {
    #[cfg(target_arch = "x86_64")]
    if wide_vectors() {
        // SAFETY: the CPU has AVX2; the rest is the caller's promise.
        return unsafe { wide::gather_words(addresses, offset) };
    }
    // SAFETY: the caller's promise.
    addresses.map(|address| unsafe { *((address as usize + offset) as *const u32) })
}

/// The 64 bits that each lane's address plus `offset` points to.
///
/// # Safety
/// They may be read, and the addresses are aligned.
#[inline(always)]
pub(super) unsafe fn gather_longs(addresses: &Addresses, offset: usize) -> [u64; WARP] {
    #[cfg(target_arch = "x86_64")]
    if wide_vectors() {
        // SAFETY: the CPU has AVX2; the rest is the caller's promise.
        return unsafe { wide::gather_longs(addresses, offset) };
    }
    // SAFETY: the caller's promise.
    addresses.map(|address| unsafe { *((address as usize + offset) as *const u64) })
}

/// Looks at all lanes: accesses of `bytes` bytes (a power of two), which should lie in `start..end`.
#[inline(always)]
pub(super) fn survey(addresses: &Addresses, start: u64, end: u64, bytes: u64) -> Survey {
    #[cfg(target_arch = "x86_64")]
    if wide_vectors() {
        // SAFETY: the CPU has AVX2.
        return unsafe { wide::survey(addresses, start, end, bytes) };
    }
    plain::survey(addresses, start, end, bytes)
}

/// The sums of a survey, all lanes or-ed together.
struct Sums {
    /// Negative if a lane is outside: its distance to the start is, or that to the last place where the access fits.
    outside: u64,
    bits: u64,
    differ: u64,
    stray: u64,
}

impl Sums {
    fn survey(&self, bytes: u64) -> Survey {
        Survey {
            suspicious: (self.outside as i64) < 0 || self.bits & (bytes - 1) != 0,
            uniform: self.differ == 0,
            consecutive: self.stray == 0,
        }
    }
}

mod plain {
    use super::{Addresses, Sums, Survey, WARP};

    pub(super) fn offset_words(base: &[u32; WARP], offset: u32, origin: u64, addresses: &mut Addresses) {
        *addresses = base.map(|address| u64::from(address.wrapping_add(offset)).wrapping_add(origin));
    }

    pub(super) fn offset_longs(base: &Addresses, offset: u64, addresses: &mut Addresses) {
        *addresses = base.map(|address| address.wrapping_add(offset));
    }

    pub(super) fn blend<T: Copy>(register: &mut [T; WARP], values: &[T; WARP], mask: u32) {
        for lane in 0..WARP {
            register[lane] = if mask >> lane & 1 != 0 { values[lane] } else { register[lane] };
        }
    }

    pub(super) fn survey(addresses: &Addresses, start: u64, end: u64, bytes: u64) -> Survey {
        // Negative if nothing fits into the window at all.
        let room = (end - start).wrapping_sub(bytes);
        let mut sums = Sums { outside: room, bits: 0, differ: 0, stray: 0 };
        for (lane, &address) in addresses.iter().enumerate() {
            let distance = address.wrapping_sub(start);
            sums.outside |= distance | room.wrapping_sub(distance);
            sums.bits |= address;
            sums.differ |= address ^ addresses[0];
            sums.stray |= address ^ addresses[0].wrapping_add(lane as u64 * bytes);
        }
        sums.survey(bytes)
    }
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::*;
    use std::mem::MaybeUninit;

    use super::{Addresses, Sums, Survey, WARP};

    /// Lanes of a vector.
    const LANES: usize = 4;

    /// # Safety
    /// The CPU has AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn offset_words(
        base: &[u32; WARP],
        offset: u32,
        origin: u64,
        addresses: &mut Addresses,
    ) {
        let (offset, origin) = (_mm_set1_epi32(offset as i32), _mm256_set1_epi64x(origin as i64));
        for chunk in 0..WARP / LANES {
            // SAFETY: four lanes from a multiple of four lie inside the arrays.
            unsafe {
                let words = _mm_loadu_si128(base.as_ptr().add(chunk * LANES).cast());
                let longs = _mm256_cvtepu32_epi64(_mm_add_epi32(words, offset));
                let to = addresses.as_mut_ptr().add(chunk * LANES);
                _mm256_storeu_si256(to.cast(), _mm256_add_epi64(longs, origin));
            }
        }
    }

    /// # Safety
    /// The CPU has AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn offset_longs(base: &Addresses, offset: u64, addresses: &mut Addresses) {
        let offset = _mm256_set1_epi64x(offset as i64);
        for chunk in 0..WARP / LANES {
            // SAFETY: four lanes from a multiple of four lie inside the arrays.
            unsafe {
                let longs = _mm256_loadu_si256(base.as_ptr().add(chunk * LANES).cast());
                let to = addresses.as_mut_ptr().add(chunk * LANES);
                _mm256_storeu_si256(to.cast(), _mm256_add_epi64(longs, offset));
            }
        }
    }

    /// # Safety
    /// The CPU has AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn survey(addresses: &Addresses, start: u64, end: u64, bytes: u64) -> Survey {
        let room = (end - start).wrapping_sub(bytes);
        let first = _mm256_set1_epi64x(addresses[0] as i64);
        let (begin, space) = (_mm256_set1_epi64x(start as i64), _mm256_set1_epi64x(room as i64));
        let step = _mm256_set1_epi64x((LANES as u64 * bytes) as i64);
        let ahead = [0, 1, 2, 3].map(|lane| (lane * bytes) as i64);
        let mut expected = _mm256_add_epi64(first, _mm256_set_epi64x(ahead[3], ahead[2], ahead[1], ahead[0]));
        let (mut outside, mut bits) = (space, _mm256_setzero_si256());
        let (mut differ, mut stray) = (bits, bits);
        for chunk in 0..WARP / LANES {
            // SAFETY: four lanes from a multiple of four lie inside the array.
            let lanes = unsafe { _mm256_loadu_si256(addresses.as_ptr().add(chunk * LANES).cast()) };
            let distance = _mm256_sub_epi64(lanes, begin);
            outside = _mm256_or_si256(outside, _mm256_or_si256(distance, _mm256_sub_epi64(space, distance)));
            bits = _mm256_or_si256(bits, lanes);
            differ = _mm256_or_si256(differ, _mm256_xor_si256(lanes, first));
            stray = _mm256_or_si256(stray, _mm256_xor_si256(lanes, expected));
            expected = _mm256_add_epi64(expected, step);
        }
        let sums = Sums { outside: any(outside), bits: any(bits), differ: any(differ), stray: any(stray) };
        sums.survey(bytes)
    }

    /// # Safety
    /// The CPU has AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn blend_words(register: &mut [u32; WARP], values: &[u32; WARP], mask: u32) {
        let bits = _mm256_set_epi32(128, 64, 32, 16, 8, 4, 2, 1);
        for chunk in 0..WARP / 8 {
            let mask = _mm256_and_si256(_mm256_set1_epi32((mask >> (8 * chunk)) as i32), bits);
            // SAFETY: eight lanes from a multiple of eight lie inside the arrays.
            unsafe {
                let values = _mm256_loadu_si256(values.as_ptr().add(8 * chunk).cast());
                let to = register.as_mut_ptr().add(8 * chunk).cast();
                _mm256_maskstore_epi32(to, _mm256_cmpeq_epi32(mask, bits), values);
            }
        }
    }

    /// # Safety
    /// The CPU has AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn blend_longs(register: &mut [u64; WARP], values: &[u64; WARP], mask: u32) {
        let bits = _mm256_set_epi64x(8, 4, 2, 1);
        for chunk in 0..WARP / LANES {
            let mask = _mm256_and_si256(_mm256_set1_epi64x((mask >> (LANES * chunk)).into()), bits);
            // SAFETY: four lanes from a multiple of four lie inside the arrays.
            unsafe {
                let values = _mm256_loadu_si256(values.as_ptr().add(LANES * chunk).cast());
                let to = register.as_mut_ptr().add(LANES * chunk).cast();
                _mm256_maskstore_epi64(to, _mm256_cmpeq_epi64(mask, bits), values);
            }
        }
    }

    /// Built up in vector registers: scalars stored one by one cannot be read as a vector without waiting for all.
    ///
    /// # Safety
    /// The CPU has AVX2; the words may be read and are aligned.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn gather_words(addresses: &Addresses, offset: usize) -> [u32; WARP] {
        let mut words = MaybeUninit::<[u32; WARP]>::uninit();
        for chunk in 0..WARP / 8 {
            // SAFETY: the caller's promise.
            let word =
                |lane: usize| unsafe { *((addresses[chunk * 8 + lane] as usize + offset) as *const i32) };
            let low = _mm_set_epi32(word(3), word(2), word(1), word(0));
            let high = _mm_set_epi32(word(7), word(6), word(5), word(4));
            let to = words.as_mut_ptr().cast::<u32>();
            // SAFETY: eight lanes from a multiple of eight lie inside the array.
            unsafe { _mm256_storeu_si256(to.add(chunk * 8).cast(), _mm256_set_m128i(high, low)) };
        }
        // SAFETY: all lanes have been written.
        unsafe { words.assume_init() }
    }

    /// # Safety
    /// The CPU has AVX2; the longs may be read and are aligned.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn gather_longs(addresses: &Addresses, offset: usize) -> [u64; WARP] {
        let mut longs = MaybeUninit::<[u64; WARP]>::uninit();
        for chunk in 0..WARP / LANES {
            // SAFETY: the caller's promise.
            let long =
                |lane: usize| unsafe { *((addresses[chunk * LANES + lane] as usize + offset) as *const i64) };
            let four = _mm256_set_epi64x(long(3), long(2), long(1), long(0));
            // SAFETY: four lanes from a multiple of four lie inside the array.
            unsafe { _mm256_storeu_si256(longs.as_mut_ptr().cast::<u64>().add(chunk * LANES).cast(), four) };
        }
        // SAFETY: all lanes have been written.
        unsafe { longs.assume_init() }
    }

    /// The lanes of a vector, or-ed together.
    #[target_feature(enable = "avx2")]
    fn any(vector: __m256i) -> u64 {
        let half = _mm_or_si128(_mm256_castsi256_si128(vector), _mm256_extracti128_si256::<1>(vector));
        (_mm_cvtsi128_si64(half) | _mm_extract_epi64::<1>(half)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(seed: &mut u64) -> u64 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        *seed
    }

    #[test]
    fn both_versions_see_the_same() {
        let mut seed = 17;
        for round in 0..20_000 {
            let bytes = 1 << (round % 5);
            let start = 0x1000 * (random(&mut seed) % 4);
            let end = start + random(&mut seed) % 600;
            let base = start.wrapping_add(random(&mut seed) % 64).wrapping_sub(8);
            let mut addresses: Addresses = std::array::from_fn(|lane| match round % 7 {
                0 => base,
                1 => base.wrapping_add(lane as u64 * bytes),
                2 => random(&mut seed),
                3 => random(&mut seed) % (end + 8),
                _ => base.wrapping_add(bytes * (random(&mut seed) % 16)),
            });
            if round % 11 == 0 {
                addresses[random(&mut seed) as usize % WARP] = random(&mut seed);
            }
            let found = survey(&addresses, start, end, bytes);
            assert_eq!(found, plain::survey(&addresses, start, end, bytes));
            let good = addresses.iter().all(|&a| {
                a >= start && a.checked_add(bytes).is_some_and(|after| after <= end) && a % bytes == 0
            });
            assert_eq!(found.suspicious, !good, "{addresses:x?} in {start:x}..{end:x}, {bytes}");
            let offset = random(&mut seed);
            let (mut one, mut other) = ([0; WARP], [0; WARP]);
            offset_longs(&addresses, offset, &mut one);
            plain::offset_longs(&addresses, offset, &mut other);
            assert_eq!(one, other);
            let words = addresses.map(|address| address as u32);
            offset_words(&words, offset as u32, start, &mut one);
            plain::offset_words(&words, offset as u32, start, &mut other);
            assert_eq!(one, other);
            let table: Vec<u64> = (0..64).map(|_| random(&mut seed)).collect();
            let within: Addresses =
                std::array::from_fn(|_| table.as_ptr() as u64 + 8 * (random(&mut seed) % 63));
            // SAFETY: the addresses are those of the first 63 of 64 longs.
            let (words_found, longs_found) = unsafe { (gather_words(&within, 4), gather_longs(&within, 8)) };
            for lane in 0..WARP {
                let at = (within[lane] as usize - table.as_ptr() as usize) / 8;
                assert_eq!(
                    (u64::from(words_found[lane]), longs_found[lane]),
                    (table[at] >> 32, table[at + 1])
                );
            }
            let (mask, mut one, mut other) = ((offset >> 32) as u32, [7; WARP], [7; WARP]);
            blend_longs(&mut one, &addresses, mask);
            plain::blend(&mut other, &addresses, mask);
            assert_eq!(one, other);
            let (mut one, mut other) = ([9; WARP], [9; WARP]);
            blend_words(&mut one, &words, mask);
            plain::blend(&mut other, &words, mask);
            assert_eq!(one, other);
        }
    }
}
