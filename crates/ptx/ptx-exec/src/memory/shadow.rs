//! The written bytes of a memory, one bit for each byte.

use std::alloc::{Layout, alloc_zeroed};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// One bit for each byte of a range of memory: set once the byte has been written.
///
/// Kernels on several threads mark it at once; what races in the program races here, and means as
/// little.
#[derive(Debug)]
pub struct Shadow {
    start: u64,
    bytes: u64,
    written: Box<[AtomicU64]>,
}

impl Shadow {
    /// A range of which nothing has been written; `None` if there is no memory to keep track of it.
    pub fn new(start: u64, bytes: u64) -> Option<Shadow> {
        let words = usize::try_from(bytes.div_ceil(64)).ok()?;
        if words == 0 {
            return Some(Shadow { start, bytes, written: Box::default() });
        }
        let layout = Layout::array::<AtomicU64>(words).ok()?;
        // SAFETY: the layout has a size.
        let zeros = NonNull::new(unsafe { alloc_zeroed(layout) })?.cast::<AtomicU64>();
        // SAFETY: the allocator that boxes use has just given so many words, and zeros are valid
        // ones.
        let written = unsafe { Box::from_raw(NonNull::slice_from_raw_parts(zeros, words).as_ptr()) };
        Some(Shadow { start, bytes, written })
    }

    /// Whether the `bytes` bytes from `address` lie in the range.
    pub fn holds(&self, address: u64, bytes: u64) -> bool {
        let offset = address.wrapping_sub(self.start);
        offset < self.bytes && self.bytes - offset >= bytes
    }

    /// Notes that the `bytes` bytes from `address` have been written; what lies outside the range
    /// is left out.
    pub fn mark(&self, address: u64, bytes: u64) {
        self.words(address, bytes, |word, bits| {
            // Most writes come again and again: a look is cheaper than a write that other threads
            // see.
            if self.written[word].load(Ordering::Relaxed) & bits != bits {
                self.written[word].fetch_or(bits, Ordering::Relaxed);
            }
            true
        });
    }

    /// Notes that nobody has written the `bytes` bytes from `address`.
    pub fn unmark(&self, address: u64, bytes: u64) {
        self.words(address, bytes, |word, bits| {
            self.written[word].fetch_and(!bits, Ordering::Relaxed);
            true
        });
    }

    /// The first address of the range.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Forgets all writes.
    pub fn clear(&self) {
        self.written.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Whether all of the `bytes` bytes from `address` have been written; true of what lies outside
    /// the range.
    pub fn is_written(&self, address: u64, bytes: u64) -> bool {
        self.words(address, bytes, |word, bits| self.written[word].load(Ordering::Relaxed) & bits == bits)
    }

    /// Notes of the `bytes` bytes from `address` what `from` knows of as many bytes from `source`.
    pub fn copy(&self, address: u64, from: &Shadow, source: u64, bytes: u64) {
        if from.is_written(source, bytes) {
            return self.mark(address, bytes);
        }
        for byte in 0..bytes {
            let written = from.is_written(source + byte, 1);
            self.words(address + byte, 1, |word, bit| {
                match written {
                    true => self.written[word].fetch_or(bit, Ordering::Relaxed),
                    false => self.written[word].fetch_and(!bit, Ordering::Relaxed),
                };
                true
            });
        }
    }

    /// Shows the bits of a range word by word, until `look` says false; whether it never did.
    fn words(&self, address: u64, bytes: u64, mut look: impl FnMut(usize, u64) -> bool) -> bool {
        let end = address.saturating_add(bytes).min(self.start + self.bytes);
        let (mut at, end) = (address.max(self.start) - self.start, end.saturating_sub(self.start));
        while at < end {
            let (word, first) = (at / 64, at % 64);
            let count = (end - at).min(64 - first);
            let bits = (u64::MAX >> (64 - count)) << first;
            if !look(word as usize, bits) {
                return false;
            }
            at += count;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_list_of_bytes() {
        let (start, bytes) = (1000, 300);
        let (shadow, other) = (Shadow::new(start, bytes).unwrap(), Shadow::new(5000, bytes).unwrap());
        let (mut list, mut copied) = (vec![false; bytes as usize], vec![false; bytes as usize]);
        let mut seed = 7u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..300 {
            let (at, count) = (random(bytes), random(20));
            shadow.mark(start + at, count);
            (at..(at + count).min(bytes)).for_each(|byte| list[byte as usize] = true);
            let (at, count) = (random(bytes), random(90));
            let expected = (at..(at + count).min(bytes)).all(|byte| list[byte as usize]);
            assert_eq!(shadow.is_written(start + at, count), expected);
            let (from, to) = (random(bytes - 40), random(bytes - 40));
            other.copy(5000 + to, &shadow, start + from, 40);
            (0..40).for_each(|byte| copied[(to + byte) as usize] = list[(from + byte) as usize]);
            let one = random(bytes);
            assert_eq!(other.is_written(5000 + one, 1), copied[one as usize]);
        }
        assert!(shadow.is_written(0, 1000) && shadow.is_written(start + bytes, 99), "outside");
        shadow.mark(start, 200);
        shadow.unmark(start + 60, 70);
        assert!(shadow.is_written(start, 60) && shadow.is_written(start + 130, 70));
        (60..130).for_each(|byte| assert!(!shadow.is_written(start + byte, 1)));
        shadow.clear();
        assert!(!shadow.is_written(start, 1));
    }
}
