//! Operations on 32 lanes that must be fast and that compilers do not vectorise well: address
//! arithmetic, tests over all lanes of a register, masked writes.
//!
//! The compiler unrolls these loops into scalar code, which is ten times as slow. They are
//! therefore written with AVX2 intrinsics, and a second time in plain Rust for CPUs without AVX2. A
//! test compares both.

use crate::registers::lanes::{Stored, WARP, wide_vectors};
use crate::registers::pattern::{PART, PARTS};

/// The addresses of the lanes.
pub(crate) type Addresses = [u64; WARP];

/// `base + offset` modulo 2^32, plus `origin`, in each lane.
#[inline(always)]
pub(crate) fn offset_words(base: &[u32; WARP], offset: u32, origin: u64, addresses: &mut Addresses) {
    #[cfg(target_arch = "x86_64")]
    if wide_vectors() {
        // SAFETY: the CPU has AVX2.
        return unsafe { wide::offset_words(base, offset, origin, addresses) };
    }
    plain::offset_words(base, offset, origin, addresses);
}

/// `base + offset` in each lane.
#[inline(always)]
pub(crate) fn offset_longs(base: &Addresses, offset: u64, addresses: &mut Addresses) {
    #[cfg(target_arch = "x86_64")]
    if wide_vectors() {
        // SAFETY: the CPU has AVX2.
        return unsafe { wide::offset_longs(base, offset, addresses) };
    }
    plain::offset_longs(base, offset, addresses);
}

/// Whether the values of each part of the warp rise by `step` (modulo 2^32) from lane to lane.
#[inline(always)]
pub(crate) fn steady_words(values: &[u32; WARP], step: u32) -> bool {
    #[cfg(target_arch = "x86_64")]
    if wide_vectors() {
        // SAFETY: the CPU has AVX2.
        return unsafe { wide::steady_words(values, step) };
    }
    plain::steady_words(values, step)
}

/// Whether the values of each part of the warp rise by `step` (modulo 2^64) from lane to lane.
#[inline(always)]
pub(crate) fn steady_longs(values: &[u64; WARP], step: u64) -> bool {
    #[cfg(target_arch = "x86_64")]
    if wide_vectors() {
        // SAFETY: the CPU has AVX2.
        return unsafe { wide::steady_longs(values, step) };
    }
    plain::steady_longs(values, step)
}

/// Whether each value is `distance` (modulo 2^32) more than the one of the same lane in `from`.
#[inline(always)]
pub(crate) fn apart_words(from: &[u32; WARP], values: &[u32; WARP], distance: u32) -> bool {
    #[cfg(target_arch = "x86_64")]
    if wide_vectors() {
        // SAFETY: the CPU has AVX2.
        return unsafe { wide::apart_words(from, values, distance) };
    }
    plain::apart_words(from, values, distance)
}

/// Whether each value is `distance` (modulo 2^64) more than the one of the same lane in `from`.
#[inline(always)]
pub(crate) fn apart_longs(from: &[u64; WARP], values: &[u64; WARP], distance: u64) -> bool {
    #[cfg(target_arch = "x86_64")]
    if wide_vectors() {
        // SAFETY: the CPU has AVX2.
        return unsafe { wide::apart_longs(from, values, distance) };
    }
    plain::apart_longs(from, values, distance)
}

/// The word of another lane in each lane: its number in `from`, modulo 32.
#[inline(always)]
pub(crate) fn exchange_words(values: &[u32; WARP], from: &[u32; WARP]) -> [u32; WARP] {
    #[cfg(target_arch = "x86_64")]
    if wide_vectors() {
        // SAFETY: the CPU has AVX2.
        return unsafe { wide::exchange_words(values, from) };
    }
    plain::exchange_words(values, from)
}

/// The sign bits of eight words.
#[inline(always)]
pub(crate) fn signs(words: &[u32; PART]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_castsi128_ps, _mm_loadu_si128, _mm_movemask_ps};
        // SAFETY: every x86-64 has SSE2; both halves lie inside the array.
        let half = |first: usize| unsafe {
            _mm_movemask_ps(_mm_castsi128_ps(_mm_loadu_si128(words.as_ptr().add(first).cast()))) as u32
        };
        half(0) | half(PART / 2) << (PART / 2)
    }
    #[cfg(not(target_arch = "x86_64"))]
    words.iter().enumerate().fold(0, |bits, (lane, word)| bits | (word >> 31) << lane)
}

/// For each mask of eight lanes all ones in those that are set. A choice by a mask from memory
/// stays a choice: of one that it understands the compiler makes a masked store, which many CPUs
/// execute badly.
pub(crate) static ACTIVE: [[u32; PART]; 256] = {
    let mut table = [[0; PART]; 256];
    let mut mask = 0;
    while mask < 256 {
        let mut lane = 0;
        while lane < PART {
            table[mask][lane] = if mask >> lane & 1 != 0 { u32::MAX } else { 0 };
            lane += 1;
        }
        mask += 1;
    }
    table
};

/// Puts the lanes of `mask` of `values` into `register`.
#[inline(never)]
pub(crate) fn blend<S: Stored>(register: &mut [S; WARP], values: &[S; WARP], mask: u32) {
    for part in 0..PARTS {
        let active = &ACTIVE[(mask >> (part * PART)) as usize % ACTIVE.len()];
        for lane in 0..PART {
            let at = part * PART + lane;
            register[at] = S::pick(active[lane], values[at], register[at]);
        }
    }
}

/// The 32 bits that each lane's address plus `offset` points to.
///
/// # Safety
/// They may be read, and the addresses are aligned.
#[inline(always)]
pub(crate) unsafe fn gather_words(addresses: &Addresses, offset: usize) -> [u32; WARP] {
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
pub(crate) unsafe fn gather_longs(addresses: &Addresses, offset: usize) -> [u64; WARP] {
    #[cfg(target_arch = "x86_64")]
    if wide_vectors() {
        // SAFETY: the CPU has AVX2; the rest is the caller's promise.
        return unsafe { wide::gather_longs(addresses, offset) };
    }
    // SAFETY: the caller's promise.
    addresses.map(|address| unsafe { *((address as usize + offset) as *const u64) })
}

/// Eight words, built up in vector registers: see [`wide::gather_words`].
#[inline(always)]
pub(crate) fn part_of_words(word: impl Fn(usize) -> u32) -> [u32; PART] {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_set_epi32};
        let word = |lane: usize| word(lane) as i32;
        // SAFETY: every x86-64 has SSE2; two vectors of four words have the bits of eight.
        unsafe {
            let low = _mm_set_epi32(word(3), word(2), word(1), word(0));
            let high = _mm_set_epi32(word(7), word(6), word(5), word(4));
            std::mem::transmute::<[__m128i; 2], [u32; PART]>([low, high])
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::array::from_fn(word)
}

/// Eight longs, likewise.
#[inline(always)]
pub(crate) fn part_of_longs(long: impl Fn(usize) -> u64) -> [u64; PART] {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_set_epi64x};
        let two = |lane: usize| {
            // SAFETY: every x86-64 has SSE2.
            unsafe { _mm_set_epi64x(long(lane + 1) as i64, long(lane) as i64) }
        };
        // SAFETY: four vectors of two longs have the bits of eight.
        unsafe { std::mem::transmute::<[__m128i; 4], [u64; PART]>([two(0), two(2), two(4), two(6)]) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::array::from_fn(long)
}

/// Whether any lane's access of `bytes` bytes (a power of two) leaves `start..end` or is
/// misaligned.
#[inline(always)]
pub(crate) fn survey(addresses: &Addresses, start: u64, end: u64, bytes: u64) -> bool {
    #[cfg(target_arch = "x86_64")]
    if wide_vectors() {
        // SAFETY: the CPU has AVX2.
        return unsafe { wide::survey(addresses, start, end, bytes) };
    }
    plain::survey(addresses, start, end, bytes)
}

/// The outcome of a survey. `outside` is negative if a lane is outside: its distance to the start
/// is, or that to the last place where the access fits.
fn suspicious(outside: u64, bits: u64, bytes: u64) -> bool {
    (outside as i64) < 0 || bits & (bytes - 1) != 0
}

mod plain {
    use super::{Addresses, PART, WARP, suspicious};

    pub(super) fn offset_words(base: &[u32; WARP], offset: u32, origin: u64, addresses: &mut Addresses) {
        *addresses = base.map(|address| u64::from(address.wrapping_add(offset)).wrapping_add(origin));
    }

    pub(super) fn offset_longs(base: &Addresses, offset: u64, addresses: &mut Addresses) {
        *addresses = base.map(|address| address.wrapping_add(offset));
    }

    pub(super) fn steady_words(values: &[u32; WARP], step: u32) -> bool {
        (0..WARP).all(|lane| {
            values[lane] == values[lane / PART * PART].wrapping_add(step.wrapping_mul((lane % PART) as u32))
        })
    }

    pub(super) fn steady_longs(values: &[u64; WARP], step: u64) -> bool {
        (0..WARP).all(|lane| {
            values[lane] == values[lane / PART * PART].wrapping_add(step.wrapping_mul((lane % PART) as u64))
        })
    }

    pub(super) fn apart_words(from: &[u32; WARP], values: &[u32; WARP], distance: u32) -> bool {
        from.iter().zip(values).all(|(from, value)| from.wrapping_add(distance) == *value)
    }

    pub(super) fn apart_longs(from: &[u64; WARP], values: &[u64; WARP], distance: u64) -> bool {
        from.iter().zip(values).all(|(from, value)| from.wrapping_add(distance) == *value)
    }

    pub(super) fn exchange_words(values: &[u32; WARP], from: &[u32; WARP]) -> [u32; WARP] {
        from.map(|lane| values[lane as usize % WARP])
    }

    pub(super) fn survey(addresses: &Addresses, start: u64, end: u64, bytes: u64) -> bool {
        // Negative if nothing fits into the window at all.
        let room = (end - start).wrapping_sub(bytes);
        let (mut outside, mut bits) = (room, 0);
        for &address in addresses {
            let distance = address.wrapping_sub(start);
            outside |= distance | room.wrapping_sub(distance);
            bits |= address;
        }
        suspicious(outside, bits, bytes)
    }
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::*;
    use std::mem::MaybeUninit;

    use super::{Addresses, PART, PARTS, WARP, suspicious};

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
    pub(super) unsafe fn survey(addresses: &Addresses, start: u64, end: u64, bytes: u64) -> bool {
        let room = (end - start).wrapping_sub(bytes);
        let (begin, space) = (_mm256_set1_epi64x(start as i64), _mm256_set1_epi64x(room as i64));
        let (mut outside, mut bits) = (space, _mm256_setzero_si256());
        for chunk in 0..WARP / LANES {
            // SAFETY: four lanes from a multiple of four lie inside the array.
            let lanes = unsafe { _mm256_loadu_si256(addresses.as_ptr().add(chunk * LANES).cast()) };
            let distance = _mm256_sub_epi64(lanes, begin);
            outside = _mm256_or_si256(outside, _mm256_or_si256(distance, _mm256_sub_epi64(space, distance)));
            bits = _mm256_or_si256(bits, lanes);
        }
        suspicious(any(outside), any(bits), bytes)
    }

    /// Each part is looked up in all four parts of the values, of which two bits of the lane's
    /// number choose.
    ///
    /// # Safety
    /// The CPU has AVX2.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn exchange_words(values: &[u32; WARP], from: &[u32; WARP]) -> [u32; WARP] {
        let mut found = [0; WARP];
        // SAFETY: eight lanes from a multiple of eight lie inside the arrays.
        let load = |words: &[u32; WARP], part: usize| unsafe {
            _mm256_loadu_si256(words.as_ptr().add(part * PART).cast())
        };
        let parts: [__m256i; PARTS] = std::array::from_fn(|part| load(values, part));
        for part in 0..PARTS {
            let from = load(from, part);
            let (odd, late) = (_mm256_slli_epi32(from, 28), _mm256_slli_epi32(from, 27));
            let within = parts.map(|part| _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(part, from)));
            let choose = |a, b, bit| _mm256_blendv_ps(a, b, _mm256_castsi256_ps(bit));
            let (low, high) = (choose(within[0], within[1], odd), choose(within[2], within[3], odd));
            // SAFETY: as above.
            unsafe { _mm256_storeu_ps(found.as_mut_ptr().add(part * PART).cast(), choose(low, high, late)) };
        }
        found
    }

    /// # Safety
    /// The CPU has AVX2.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn steady_words(values: &[u32; WARP], step: u32) -> bool {
        let lanes = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
        let rise = _mm256_mullo_epi32(_mm256_set1_epi32(step as i32), lanes);
        let mut stray = _mm256_setzero_si256();
        for part in 0..PARTS {
            let first = _mm256_set1_epi32(values[part * PART] as i32);
            // SAFETY: eight lanes from a multiple of eight lie inside the array.
            let found = unsafe { _mm256_loadu_si256(values.as_ptr().add(part * PART).cast()) };
            stray = _mm256_or_si256(stray, _mm256_xor_si256(found, _mm256_add_epi32(first, rise)));
        }
        _mm256_testz_si256(stray, stray) != 0
    }

    /// # Safety
    /// The CPU has AVX2.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn steady_longs(values: &[u64; WARP], step: u64) -> bool {
        let rises = |lane: u64| step.wrapping_mul(lane) as i64;
        let low = _mm256_set_epi64x(rises(3), rises(2), rises(1), 0);
        let high = _mm256_add_epi64(low, _mm256_set1_epi64x(rises(4)));
        let mut stray = _mm256_setzero_si256();
        for part in 0..PARTS {
            let first = _mm256_set1_epi64x(values[part * PART] as i64);
            for (half, rise) in [low, high].into_iter().enumerate() {
                // SAFETY: four lanes from a multiple of four lie inside the array.
                let found =
                    unsafe { _mm256_loadu_si256(values.as_ptr().add(part * PART + half * LANES).cast()) };
                stray = _mm256_or_si256(stray, _mm256_xor_si256(found, _mm256_add_epi64(first, rise)));
            }
        }
        _mm256_testz_si256(stray, stray) != 0
    }

    /// # Safety
    /// The CPU has AVX2.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn apart_words(from: &[u32; WARP], values: &[u32; WARP], distance: u32) -> bool {
        let distance = _mm256_set1_epi32(distance as i32);
        let mut stray = _mm256_setzero_si256();
        for part in 0..PARTS {
            // SAFETY: eight lanes from a multiple of eight lie inside the arrays.
            let (from, found) = unsafe {
                let (from, values) = (from.as_ptr().add(part * PART), values.as_ptr().add(part * PART));
                (_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(values.cast()))
            };
            stray = _mm256_or_si256(stray, _mm256_xor_si256(found, _mm256_add_epi32(from, distance)));
        }
        _mm256_testz_si256(stray, stray) != 0
    }

    /// # Safety
    /// The CPU has AVX2.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn apart_longs(from: &[u64; WARP], values: &[u64; WARP], distance: u64) -> bool {
        let distance = _mm256_set1_epi64x(distance as i64);
        let mut stray = _mm256_setzero_si256();
        for chunk in 0..WARP / LANES {
            // SAFETY: four lanes from a multiple of four lie inside the arrays.
            let (from, found) = unsafe {
                let (from, values) = (from.as_ptr().add(chunk * LANES), values.as_ptr().add(chunk * LANES));
                (_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(values.cast()))
            };
            stray = _mm256_or_si256(stray, _mm256_xor_si256(found, _mm256_add_epi64(from, distance)));
        }
        _mm256_testz_si256(stray, stray) != 0
    }

    /// Built up in vector registers: scalars stored one by one cannot be read as a vector without
    /// waiting for all.
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
    use apex_random::Random;

    #[test]
    fn both_versions_see_the_same() {
        let mut random = Random::new(17);
        for round in 0..20_000 {
            let bytes = 1 << (round % 5);
            let start = 0x1000 * (random.bits() % 4);
            let end = start + random.bits() % 600;
            let base = start.wrapping_add(random.bits() % 64).wrapping_sub(8);
            let mut addresses: Addresses = std::array::from_fn(|lane| match round % 7 {
                0 => base,
                1 => base.wrapping_add(lane as u64 * bytes),
                2 => random.bits(),
                3 => random.bits() % (end + 8),
                _ => base.wrapping_add(bytes * (random.bits() % 16)),
            });
            if round % 11 == 0 {
                addresses[random.bits() as usize % WARP] = random.bits();
            }
            let found = survey(&addresses, start, end, bytes);
            assert_eq!(found, plain::survey(&addresses, start, end, bytes));
            let good = addresses.iter().all(|&a| {
                a >= start && a.checked_add(bytes).is_some_and(|after| after <= end) && a % bytes == 0
            });
            assert_eq!(found, !good, "{addresses:x?} in {start:x}..{end:x}, {bytes}");
            let offset = random.bits();
            let (mut one, mut other) = ([0; WARP], [0; WARP]);
            offset_longs(&addresses, offset, &mut one);
            plain::offset_longs(&addresses, offset, &mut other);
            assert_eq!(one, other);
            let words = addresses.map(|address| address as u32);
            offset_words(&words, offset as u32, start, &mut one);
            plain::offset_words(&words, offset as u32, start, &mut other);
            assert_eq!(one, other);
            let table: Vec<u64> = (0..64).map(|_| random.bits()).collect();
            let within: Addresses = std::array::from_fn(|_| table.as_ptr() as u64 + 8 * (random.bits() % 63));
            // SAFETY: the addresses are those of the first 63 of 64 longs.
            let (words_found, longs_found) = unsafe { (gather_words(&within, 4), gather_longs(&within, 8)) };
            for lane in 0..WARP {
                let at = (within[lane] as usize - table.as_ptr() as usize) / 8;
                assert_eq!(
                    (u64::from(words_found[lane]), longs_found[lane]),
                    (table[at] >> 32, table[at + 1])
                );
            }
            let lanes = std::array::from_fn(|_| random.bits() as u32);
            assert_eq!(exchange_words(&words, &lanes), plain::exchange_words(&words, &lanes));
            let step = [0, bytes, random.bits()][round % 3];
            assert_eq!(steady_longs(&addresses, step), plain::steady_longs(&addresses, step));
            assert_eq!(steady_words(&words, step as u32), plain::steady_words(&words, step as u32));
            let mut further = addresses.map(|address| address.wrapping_add(step));
            further[round % WARP] ^= u64::from(round % 3 == 0);
            let further_words = further.map(|address| address as u32);
            assert_eq!(apart_longs(&addresses, &further, step), round % 3 != 0);
            assert_eq!(plain::apart_longs(&addresses, &further, step), round % 3 != 0);
            assert_eq!(apart_words(&words, &further_words, step as u32), round % 3 != 0);
            assert_eq!(plain::apart_words(&words, &further_words, step as u32), round % 3 != 0);
            let (mask, mut longs) = ((offset >> 32) as u32, [7; WARP]);
            blend(&mut longs, &addresses, mask);
            let mut blended = [9; WARP];
            blend(&mut blended, &words, mask);
            for lane in 0..WARP {
                let active = mask >> lane & 1 != 0;
                assert_eq!(longs[lane], if active { addresses[lane] } else { 7 });
                assert_eq!(blended[lane], if active { words[lane] } else { 9 });
            }
        }
    }
}
