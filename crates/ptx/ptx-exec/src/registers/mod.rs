//! The registers of a warp.
//!
//! There are three register files, one for each class, and a function's frame is a range in each.
//! Longs are not pairs of words in one file, because diverged lanes may be in different functions
//! whose frames are at the same place, and each lane must own the same bytes in all of them.

pub(crate) mod handler;
pub(crate) mod lanes;
pub(crate) mod pattern;
pub(crate) mod shapes;
pub(crate) mod vectors;

use crate::budget::Share;
use crate::operands::Class;
use crate::registers::lanes::WARP;

/// A word: 32 lanes of 32 bits.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
pub(crate) struct Word(pub(crate) [u32; WARP]);

/// A long: 32 lanes of 64 bits.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
pub(crate) struct Long(pub(crate) [u64; WARP]);

/// A number of registers in each file: a size, or where a frame begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) words: u32,
    pub(crate) longs: u32,
    pub(crate) predicates: u32,
}

impl Extent {
    pub(crate) fn plus(self, other: Extent) -> Extent {
        Extent {
            words: self.words + other.words,
            longs: self.longs + other.longs,
            predicates: self.predicates + other.predicates,
        }
    }

    /// Returns the size of these registers in bytes.
    pub(crate) fn bytes(self) -> u32 {
        let [words, longs] = [(self.words, size_of::<Word>()), (self.longs, size_of::<Long>())]
            .map(|(count, bytes)| count.saturating_mul(bytes as u32));
        words.saturating_add(longs)
    }

    /// The count of one class.
    pub(crate) fn count_mut(&mut self, class: Class) -> &mut u32 {
        match class {
            Class::Word => &mut self.words,
            Class::Long => &mut self.longs,
            Class::Predicate => &mut self.predicates,
        }
    }
}

/// Most registers of a file, which is what bounds recursion: 64 MiB of words.
const MAX_REGISTERS: u32 = 1 << 19;

/// The reason why registers cannot grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// A file would have more registers than any may have.
    Registers,
    /// The launch has no memory left.
    Memory,
}

/// Fills a file up to `length` registers; whether there was memory for it.
fn grow<T: Clone>(file: &mut Vec<T>, length: u32, zero: T, share: &mut Share) -> bool {
    let missing = (length as usize).saturating_sub(file.len());
    if missing == 0 {
        return true;
    }
    let granted = share.take((missing * size_of::<T>()) as u64) && file.try_reserve(missing).is_ok();
    if granted {
        file.resize(length as usize, zero);
    }
    granted
}

/// The three files.
pub(crate) struct Registers {
    words: Vec<Word>,
    longs: Vec<Long>,
    predicates: Vec<u32>,
}

impl Registers {
    pub(crate) fn new(size: Extent) -> Self {
        Registers {
            words: vec![Word([0; WARP]); size.words as usize],
            longs: vec![Long([0; WARP]); size.longs as usize],
            predicates: vec![0; size.predicates as usize],
        }
    }

    /// Makes room up to `end`, and has `share` account for it.
    pub(crate) fn grow(&mut self, end: Extent, share: &mut Share) -> Result<(), Shortage> {
        if end.words.max(end.longs).max(end.predicates) > MAX_REGISTERS {
            return Err(Shortage::Registers);
        }
        let fits = grow(&mut self.words, end.words, Word([0; WARP]), share)
            && grow(&mut self.longs, end.longs, Long([0; WARP]), share)
            && grow(&mut self.predicates, end.predicates, 0, share);
        if fits { Ok(()) } else { Err(Shortage::Memory) }
    }

    /// First word, long and predicate of the frame that begins at `base`.
    #[inline]
    pub(crate) fn frame(&mut self, base: Extent) -> (*mut Word, *mut Long, *mut u32) {
        (
            self.words[base.words as usize..].as_mut_ptr(),
            self.longs[base.longs as usize..].as_mut_ptr(),
            self.predicates[base.predicates as usize..].as_mut_ptr(),
        )
    }

    /// Puts `values` into the register `index` of the first frame.
    #[inline]
    pub(crate) fn load(&mut self, class: Class, index: u32, values: &[u64; WARP]) {
        match class {
            Class::Word => self.words[index as usize].0 = values.map(|value| value as u32),
            Class::Long => self.longs[index as usize].0 = *values,
            Class::Predicate => self.set(Extent::default(), class, index, u32::MAX, values),
        }
    }

    /// Puts `values` into the register `index` of the frame at `base`, in the lanes of `mask`.
    pub(crate) fn set(&mut self, base: Extent, class: Class, index: u32, mask: u32, values: &[u64; WARP]) {
        let inside = |lane: usize| mask >> lane & 1 != 0;
        match class {
            Class::Word => {
                let word = &mut self.words[(base.words + index) as usize].0;
                (0..WARP).filter(|&lane| inside(lane)).for_each(|lane| word[lane] = values[lane] as u32);
            }
            Class::Long => {
                let long = &mut self.longs[(base.longs + index) as usize].0;
                (0..WARP).filter(|&lane| inside(lane)).for_each(|lane| long[lane] = values[lane]);
            }
            Class::Predicate => {
                let bits = (0..WARP).fold(0, |bits, lane| bits | u32::from(values[lane] != 0) << lane);
                let predicate = &mut self.predicates[(base.predicates + index) as usize];
                *predicate = *predicate & !mask | bits & mask;
            }
        }
    }
}
