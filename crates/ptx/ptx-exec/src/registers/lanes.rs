//! The 32 lanes of a warp's registers: their types, how a step reads and writes them, and loops
//! over them that vectorise.
//!
//! # Safety
//!
//! The caller of an unsafe function here promises that the [`Lanes`] point to a frame that has the
//! registers that it names, of the class that it names.

use crate::operands::{Args, Class, Guard, Reg};
use crate::registers::pattern::{PART, PARTS};
use crate::registers::vectors::{blend, part_of_longs, part_of_words};
use crate::registers::{Long, Word};

/// Lanes of a warp.
pub(crate) const WARP: usize = 32;

/// The lanes of a register.
pub(crate) type Register<T> = [T; WARP];

/// The registers of a warp's frame, and the lanes for which a step acts.
#[derive(Clone, Copy)]
pub(crate) struct Lanes {
    /// Words of the frame.
    pub(crate) words: *mut Word,
    /// Longs of the frame.
    pub(crate) longs: *mut Long,
    /// Predicates of the frame.
    pub(crate) predicates: *mut u32,
    /// Lanes that act.
    pub(crate) mask: u32,
    /// Lanes that have not exited.
    pub(crate) live: u32,
    /// Whether the mask has all of them.
    pub(crate) full: bool,
    /// First address of the local memory of lane 0.
    pub(crate) local: u64,
}

/// The class of register that holds a type.
pub(crate) trait RegisterType {
    const CLASS: Class;
}

impl RegisterType for bool {
    const CLASS: Class = Class::Predicate;
}

/// A lane of a word or of a long.
pub(crate) trait Stored: Copy + Default {
    /// The register `index` of the frame.
    ///
    /// # Safety
    /// The frame has it.
    unsafe fn register(lanes: &Lanes, index: usize) -> *mut [Self; WARP];

    /// `new` where `active` is all ones, `old` where it is zero.
    fn pick(active: u32, new: Self, old: Self) -> Self;

    /// The lanes of a part, put together in vector registers.
    fn part(value: impl Fn(usize) -> Self) -> [Self; PART];
}

impl Stored for u32 {
    #[inline(always)]
    unsafe fn register(lanes: &Lanes, index: usize) -> *mut [u32; WARP] {
        // SAFETY: the register lies in the file, as the caller promises.
        unsafe { lanes.words.add(index).cast() }
    }

    #[inline(always)]
    fn pick(active: u32, new: u32, old: u32) -> u32 {
        new & active | old & !active
    }

    #[inline(always)]
    fn part(value: impl Fn(usize) -> u32) -> [u32; PART] {
        part_of_words(value)
    }
}

impl Stored for u64 {
    #[inline(always)]
    unsafe fn register(lanes: &Lanes, index: usize) -> *mut [u64; WARP] {
        // SAFETY: the register lies in the file, as the caller promises.
        unsafe { lanes.longs.add(index).cast() }
    }

    #[inline(always)]
    fn pick(active: u32, new: u64, old: u64) -> u64 {
        let active = active as i32 as u64;
        new & active | old & !active
    }

    #[inline(always)]
    fn part(value: impl Fn(usize) -> u64) -> [u64; PART] {
        part_of_longs(value)
    }
}

/// A scalar as a lane of a register holds it.
pub(crate) trait Lane: Copy + RegisterType {
    /// `u32` for words, `u64` for longs.
    type Stored: Stored;
    fn load(stored: Self::Stored) -> Self;
    fn store(self) -> Self::Stored;
}

macro_rules! lane {
    ($($ty:ty: $class:ident $stored:ty, $from:expr, $to:expr;)*) => {$(
        impl RegisterType for $ty {
            const CLASS: Class = Class::$class;
        }

        impl Lane for $ty {
            type Stored = $stored;
            #[inline(always)]
            fn load(stored: $stored) -> Self {
                $from(stored)
            }
            #[inline(always)]
            fn store(self) -> $stored {
                $to(self)
            }
        }
    )*};
}

lane! {
    u32: Word u32, |x| x, |x| x;
    i32: Word u32, |x| x as i32, |x| x as u32;
    f32: Word u32, f32::from_bits, f32::to_bits;
    u64: Long u64, |x| x, |x| x;
    i64: Long u64, |x| x as i64, |x| x as u64;
    f64: Long u64, f64::from_bits, f64::to_bits;
    // Narrow values fill the word, extended by their own sign, whatever the width of the register.
    u16: Word u32, |x| x as u16, u32::from;
    i16: Word u32, |x| x as i16, |x| x as i32 as u32;
    u8: Word u32, |x| x as u8, u32::from;
    i8: Word u32, |x| x as i8, |x| x as i32 as u32;
}

impl Lanes {
    /// The lanes that a guard lets pass, of all 32.
    ///
    /// # Safety
    /// The frame has the guard's predicate.
    #[inline(always)]
    pub(crate) unsafe fn passing(&self, guard: Guard) -> u32 {
        // SAFETY: as the caller promises.
        unsafe {
            match guard {
                Guard::Always => u32::MAX,
                Guard::If(reg) => self.predicate(reg),
                Guard::Unless(reg) => !self.predicate(reg),
            }
        }
    }

    /// The lanes of a source register.
    ///
    /// # Safety
    /// The frame has `reg`, of the class of `S`, and nobody writes it while the reference lives.
    #[inline(always)]
    pub(crate) unsafe fn source<S: Stored>(&self, reg: Reg) -> &[S; WARP] {
        // SAFETY: as the caller promises.
        unsafe { &*S::register(self, reg.0 as usize) }
    }

    /// The sources of a step on whole registers: `b` and `c` are `a` where they are absent.
    ///
    /// # Safety
    /// The frame has the registers, of the class of `S`, and nobody writes them while the
    /// references live.
    #[inline(always)]
    pub(crate) unsafe fn sources<S: Stored>(&self, args: &Args) -> [&[S; WARP]; 3] {
        let or_first = |reg: Reg| if reg.is_some() { reg } else { args.a };
        // SAFETY: as the caller promises.
        [args.a, or_first(args.b), or_first(args.c)].map(|reg| unsafe { self.source(reg) })
    }

    /// Reads the lanes of a source register that may be the destination too.
    ///
    /// # Safety
    /// The frame has `reg`, of the class of `S`, whenever a lane is read.
    #[inline(always)]
    pub(super) unsafe fn reader<S: Stored>(&self, reg: Reg) -> impl Fn(usize) -> S + Copy {
        // SAFETY: as the caller promises.
        let register = unsafe { S::register(self, reg.0 as usize) }.cast_const().cast::<S>();
        // SAFETY: a register has 32 lanes.
        move |lane| unsafe { *register.add(lane % WARP) }
    }

    /// Puts the active lanes of `values` into `reg`.
    ///
    /// # Safety
    /// The frame has `reg`, of the class of `S`.
    #[inline(always)]
    pub(crate) unsafe fn write<S: Stored>(&self, reg: Reg, values: &[S; WARP]) {
        // SAFETY: as the caller promises; no other reference to the register is alive, `values` is
        // the caller's own.
        let destination = unsafe { &mut *S::register(self, reg.0 as usize) };
        if self.full {
            *destination = *values;
        } else {
            blend(destination, values, self.mask);
        }
    }

    /// Puts `values` into a part of `reg`, for a warp of which all lanes act.
    ///
    /// # Safety
    /// The frame has `reg`, of the class of `S`; `part` is below [`PARTS`].
    #[inline(always)]
    pub(crate) unsafe fn write_part<S: Stored>(&self, reg: Reg, part: usize, values: [S; PART]) {
        // SAFETY: as the caller promises.
        unsafe { S::register(self, reg.0 as usize).cast::<[S; PART]>().add(part).write(values) };
    }

    /// Puts a number into all lanes of a warp of which all lanes act.
    ///
    /// # Safety
    /// The frame has `reg`, of this class.
    #[inline(always)]
    pub(crate) unsafe fn fill(&self, class: Class, reg: Reg, value: u32) {
        // SAFETY: as the caller promises.
        unsafe {
            match class {
                Class::Word => (0..PARTS).for_each(|part| self.write_part(reg, part, [value; PART])),
                Class::Long => {
                    (0..PARTS).for_each(|part| self.write_part(reg, part, [u64::from(value); PART]))
                }
                Class::Predicate => self.write_predicate(reg, if value != 0 { u32::MAX } else { 0 }),
            }
        }
    }

    /// # Safety
    /// The frame has the predicate `reg`.
    #[inline(always)]
    pub(crate) unsafe fn predicate(&self, reg: Reg) -> u32 {
        // SAFETY: as the caller promises.
        unsafe { *self.predicates.add(reg.0 as usize) }
    }

    /// Puts the active lanes of `bits` into the predicate `reg`.
    ///
    /// # Safety
    /// The frame has the predicate `reg`.
    #[inline(always)]
    pub(crate) unsafe fn write_predicate(&self, reg: Reg, bits: u32) {
        // SAFETY: as the caller promises.
        let predicate = unsafe { &mut *self.predicates.add(reg.0 as usize) };
        *predicate = *predicate & !self.mask | bits & self.mask;
    }
}

/// Calls `f` for each lane of `mask`.
#[inline(always)]
pub(crate) fn each_lane(mut mask: u32, mut f: impl FnMut(usize)) {
    while mask != 0 {
        f(mask.trailing_zeros() as usize);
        mask &= mask - 1;
    }
}

/// Whether this CPU has the vectors that the wide versions of handlers need.
#[inline(always)]
pub(crate) fn wide_vectors() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        static WIDE: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
            is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("popcnt")
                && is_x86_feature_detected!("f16c")
        });
        *WIDE
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// `f` of each lane, computed part by part so that it vectorises.
#[inline(always)]
pub(crate) fn map<A: Copy, R: Copy + Default>(a: &[A; WARP], f: impl Fn(A) -> R) -> [R; WARP] {
    zip(a, a, |a, _| f(a))
}

/// `f` of each lane of two registers, likewise.
#[inline(always)]
pub(crate) fn zip<A: Copy, B: Copy, R: Copy + Default>(
    a: &[A; WARP],
    b: &[B; WARP],
    f: impl Fn(A, B) -> R,
) -> [R; WARP] {
    let mut results = [R::default(); WARP];
    for part in 0..PARTS {
        let mut values = [R::default(); PART];
        for lane in 0..PART {
            values[lane] = f(a[part * PART + lane], b[part * PART + lane]);
        }
        results[part * PART..][..PART].copy_from_slice(&values);
    }
    results
}
