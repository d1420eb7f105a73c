//! Computing on 32 lanes at once.
//!
//! An instruction's meaning is written once, as a closure on scalars; [`unary`], [`binary`],
//! [`compare`] and the other *shapes* turn it into a [`LaneHandler`] that applies it to whole
//! registers. Each handler exists in two versions, for any CPU and for one with wide vectors, and
//! the choice is made when the handler is made. A handler computes its step for several warps after
//! each other: see [`crate::warp::batch`].
//!
//! Shapes compute all 32 lanes and keep those of the mask, so that the loop vectorises. What takes
//! several stages is a function of whole [`registers`], each stage a loop of its own.
//!
//! # Safety
//!
//! A handler dereferences the registers that its [`Args`] name, as the types of its closure say:
//! these are its [`Needs`], which the compiler checks for every step. The caller promises that the
//! [`Lanes`] point to a frame that has the registers, and that handlers run on the CPU that they
//! were made on.

use std::ptr::NonNull;

use crate::operands::{Args, Class, Guard, Meaning, Reg};
use crate::registers::pattern::{PART, PARTS};
use crate::registers::vectors::{ACTIVE, blend, part_of_longs, part_of_words, signs};
use crate::registers::{Long, Word};

/// Lanes of a warp.
pub(crate) const WARP: usize = 32;

/// Where a step finds its registers, and for which lanes it acts.
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

/// Computes one step, for each of some warps. See the module's safety contract.
pub(crate) type RunLanes = unsafe fn(&[Lanes], &Args);

/// A way to compute a step, and the registers that it takes.
#[derive(Clone, Copy)]
pub(crate) struct LaneHandler {
    pub(crate) run: RunLanes,
    pub(crate) needs: Needs,
    pub(crate) meaning: Meaning,
}

impl LaneHandler {
    /// The handler that [`registers`] has written for any CPU and for one with wide vectors.
    pub(crate) fn on_registers<A: Held, R: Held>(plain: RunLanes, wide: RunLanes) -> Self {
        let (a, other) = (Need::One(A::CLASS), Need::Optional(A::CLASS));
        let needs = Needs { d: Need::One(R::CLASS), a, b: other, c: other, ..Needs::NONE };
        let run = if wide_vectors() { wide } else { plain };
        LaneHandler { run, needs, meaning: Meaning::Other }
    }

    /// The handler, with what it means.
    pub(crate) fn meaning(self, meaning: Meaning) -> Self {
        LaneHandler { meaning, ..self }
    }
}

/// What a handler expects of one of its [`Args`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// It is not looked at.
    Ignored,
    /// A register of this class.
    One(Class),
    /// A register of this class, or none.
    Optional(Class),
}

/// What a handler expects of its [`Args`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    d: Need,
    e: Need,
    a: Need,
    b: Need,
    c: Need,
    f: Need,
}

impl Needs {
    const NONE: Needs = Needs {
        d: Need::Ignored,
        e: Need::Ignored,
        a: Need::Ignored,
        b: Need::Ignored,
        c: Need::Ignored,
        f: Need::Ignored,
    };

    /// Whether `args` are what the handler expects.
    pub(crate) fn met_by(&self, args: &Args, class: impl Fn(Reg) -> Class) -> bool {
        let met = |need: Need, reg: Reg| match need {
            Need::Ignored => true,
            Need::Optional(_) if !reg.is_some() => true,
            Need::One(wanted) | Need::Optional(wanted) => reg.is_some() && class(reg) == wanted,
        };
        met(self.d, args.d)
            && met(self.e, args.e)
            && met(self.a, args.a)
            && met(self.b, args.b)
            && met(self.c, args.c)
            && met(self.f, args.f)
    }
}

/// The class of register that holds a type.
pub(crate) trait Held {
    const CLASS: Class;
}

impl Held for bool {
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
pub(crate) trait Lane: Copy + Held {
    /// `u32` for words, `u64` for longs.
    type Stored: Stored;
    fn load(stored: Self::Stored) -> Self;
    fn store(self) -> Self::Stored;
}

macro_rules! lane {
    ($($ty:ty: $class:ident $stored:ty, $from:expr, $to:expr;)*) => {$(
        impl Held for $ty {
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
    unsafe fn reader<S: Stored>(&self, reg: Reg) -> impl Fn(usize) -> S + Copy {
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

/// Puts `value(lane)` into the active lanes of `reg`.
///
/// The lanes of a chunk are all read before any is written, so `reg` may be a source too.
///
/// # Safety
/// The frame has `reg`, of the class of `S`; nobody holds a reference to it. `value` may be called
/// for every lane.
#[inline(always)]
unsafe fn fill<S: Stored>(lanes: &Lanes, reg: Reg, value: impl Fn(usize) -> S) {
    // SAFETY: the caller's promise.
    let register = unsafe { S::register(lanes, reg.0 as usize) }.cast::<[S; PART]>();
    let compute = |chunk: usize| {
        let mut part = [S::default(); PART];
        for lane in 0..PART {
            part[lane] = value(chunk * PART + lane);
        }
        part
    };
    for chunk in 0..PARTS {
        // SAFETY: the chunk lies inside the 32 lanes of the register.
        let to = unsafe { register.add(chunk) };
        let mut part = compute(chunk);
        if !lanes.full {
            // SAFETY: as above.
            let old = unsafe { to.read() };
            let active = &ACTIVE[(lanes.mask >> (chunk * PART)) as usize % ACTIVE.len()];
            for lane in 0..PART {
                part[lane] = S::pick(active[lane], part[lane], old[lane]);
            }
        }
        // SAFETY: as above.
        unsafe { to.write(part) };
    }
}

/// The lanes for which `test` holds, as bits.
#[inline(always)]
fn bits(test: impl Fn(usize) -> bool) -> u32 {
    let mut bits = 0;
    for part in 0..PARTS {
        let mut holds = [0u32; PART];
        for lane in 0..PART {
            holds[lane] = if test(part * PART + lane) { u32::MAX } else { 0 };
        }
        bits |= signs(&holds) << (part * PART);
    }
    bits
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

/// The closure of which only the type is known.
///
/// # Safety
/// A value of `F` exists.
#[inline(always)]
pub(crate) unsafe fn conjure<F: Copy>() -> F {
    const { assert!(size_of::<F>() == 0, "meanings of instructions capture nothing") };
    // SAFETY: `F` has no bytes, so reading one needs no memory; the caller has seen a value of it.
    unsafe { NonNull::<F>::dangling().read() }
}

/// Defines a shape: the function that makes handlers, and the two versions of the handler.
macro_rules! shape {
    (
        $(#[$doc:meta])* $name:ident<$($param:ident: $bound:path),*>($($argument:ident),* => $result:ty)
        needs [$($field:ident: $held:ty),* $(; optional $($maybe:ident: $maybe_held:ty),*)?]
        $body:expr
    ) => {
        $(#[$doc])*
        pub(crate) fn $name<$($param: $bound,)* F>(_: F) -> LaneHandler
        where
            F: Fn($($argument),*) -> $result + Copy,
        {
            /// # Safety
            /// See the module. A value of `F` exists, for `$name` was given one.
            unsafe fn plain<$($param: $bound,)* F>(warps: &[Lanes], args: &Args)
            where
                F: Fn($($argument),*) -> $result + Copy,
            {
                for lanes in warps {
                    // SAFETY: the caller's promise.
                    unsafe { ($body)(conjure::<F>(), lanes, args) }
                }
            }

            /// # Safety
            /// See the module. A value of `F` exists, for `$name` was given one.
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c")]
            unsafe fn wide<$($param: $bound,)* F>(warps: &[Lanes], args: &Args)
            where
                F: Fn($($argument),*) -> $result + Copy,
            {
                for lanes in warps {
                    // SAFETY: the caller's promise.
                    unsafe { ($body)(conjure::<F>(), lanes, args) }
                }
            }

            let needs = Needs {
                $($field: Need::One(<$held as Held>::CLASS),)*
                $($($maybe: Need::Optional(<$maybe_held as Held>::CLASS),)*)?
                ..Needs::NONE
            };
            #[cfg(target_arch = "x86_64")]
            if wide_vectors() {
                return LaneHandler { run: wide::<$($param,)* F>, needs, meaning: Meaning::Other };
            }
            LaneHandler { run: plain::<$($param,)* F>, needs, meaning: Meaning::Other }
        }
    };
}

shape! {
    /// `d = f(a)`.
    unary<A: Lane, R: Lane>(A => R)
    needs [d: R, a: A]
    |f: F, lanes: &Lanes, args: &Args| {
        let a = lanes.reader::<A::Stored>(args.a);
        fill(lanes, args.d, |lane| f(A::load(a(lane))).store());
    }
}

shape! {
    /// `d = f(a, b)`.
    binary<A: Lane, B: Lane, R: Lane>(A, B => R)
    needs [d: R, a: A, b: B]
    |f: F, lanes: &Lanes, args: &Args| {
        let a = lanes.reader::<A::Stored>(args.a);
        let b = lanes.reader::<B::Stored>(args.b);
        fill(lanes, args.d, |lane| f(A::load(a(lane)), B::load(b(lane))).store());
    }
}

shape! {
    /// `d = f(a, b, c)`.
    ternary<A: Lane, B: Lane, C: Lane, R: Lane>(A, B, C => R)
    needs [d: R, a: A, b: B, c: C]
    |f: F, lanes: &Lanes, args: &Args| {
        let a = lanes.reader::<A::Stored>(args.a);
        let b = lanes.reader::<B::Stored>(args.b);
        let c = lanes.reader::<C::Stored>(args.c);
        fill(lanes, args.d, |lane| f(A::load(a(lane)), B::load(b(lane)), C::load(c(lane))).store());
    }
}

shape! {
    /// `d = f(a, b, c, immediate)`.
    ternary_immediate<A: Lane, B: Lane, C: Lane, R: Lane>(A, B, C, u32 => R)
    needs [d: R, a: A, b: B, c: C]
    |f: F, lanes: &Lanes, args: &Args| {
        let a = lanes.reader::<A::Stored>(args.a);
        let b = lanes.reader::<B::Stored>(args.b);
        let c = lanes.reader::<C::Stored>(args.c);
        fill(lanes, args.d, |lane| f(A::load(a(lane)), B::load(b(lane)), C::load(c(lane)), args.immediate).store());
    }
}

/// The lanes of a register.
pub(crate) type Register<T> = [T; WARP];

/// `d = f(a, b, c, immediate)` on whole registers of `u32` or `u64`, written `registers!(from =>
/// to, |a, b, c, immediate| f)`; `b` and `c` are `a` where they are absent.
///
/// A macro, because a closure that is handed on is compiled for any CPU, unless it is so small that
/// it disappears.
macro_rules! registers {
    ($from:ty => $to:ty, |$a:pat_param, $b:pat_param, $c:pat_param, $immediate:pat_param| $body:expr) => {{
        use $crate::operands::Args;
        use $crate::registers::lanes::{LaneHandler, Lanes, Register};
        /// # Safety
        /// See the module `lanes`.
        unsafe fn plain(warps: &[Lanes], args: &Args) {
            for lanes in warps {
                // SAFETY: the caller's promise.
                let ([$a, $b, $c], $immediate) = (unsafe { lanes.sources::<$from>(args) }, args.immediate);
                let result: Register<$to> = $body;
                // SAFETY: the caller's promise.
                unsafe { lanes.write(args.d, &result) };
            }
        }
        /// # Safety
        /// See the module `lanes`.
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c")]
        unsafe fn wide(warps: &[Lanes], args: &Args) {
            for lanes in warps {
                // SAFETY: the caller's promise.
                let ([$a, $b, $c], $immediate) = (unsafe { lanes.sources::<$from>(args) }, args.immediate);
                let result: Register<$to> = $body;
                // SAFETY: the caller's promise.
                unsafe { lanes.write(args.d, &result) };
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        use plain as wide;
        LaneHandler::on_registers::<$from, $to>(plain, wide)
    }};
}

pub(crate) use registers;

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

shape! {
    /// `d = f(a, b, c, f)`: four sources.
    quaternary<A: Lane, B: Lane, C: Lane, D: Lane, R: Lane>(A, B, C, D => R)
    needs [d: R, a: A, b: B, c: C, f: D]
    |f: F, lanes: &Lanes, args: &Args| {
        let a = lanes.reader::<A::Stored>(args.a);
        let b = lanes.reader::<B::Stored>(args.b);
        let c = lanes.reader::<C::Stored>(args.c);
        let d = lanes.reader::<D::Stored>(args.f);
        fill(lanes, args.d, |lane| f(A::load(a(lane)), B::load(b(lane)), C::load(c(lane)), D::load(d(lane))).store());
    }
}

shape! {
    /// `d, e = f(a)`: two results, either of which may be unwanted.
    split<A: Lane, R: Lane, S: Lane>(A => (R, S))
    needs [a: A; optional d: R, e: S]
    |f: F, lanes: &Lanes, args: &Args| {
        // The source may be a destination too: both results are complete before one is written.
        let a = lanes.source::<A::Stored>(args.a);
        let first = map(a, |a| f(A::load(a)).0.store());
        let second = map(a, |a| f(A::load(a)).1.store());
        if args.d.is_some() {
            lanes.write(args.d, &first);
        }
        if args.e.is_some() {
            lanes.write(args.e, &second);
        }
    }
}

shape! {
    /// `d = f(a, b, predicate c)`.
    select<A: Lane, B: Lane, R: Lane>(A, B, bool => R)
    needs [d: R, a: A, b: B, c: bool]
    |f: F, lanes: &Lanes, args: &Args| {
        let a = lanes.reader::<A::Stored>(args.a);
        let b = lanes.reader::<B::Stored>(args.b);
        let c = lanes.predicate(args.c);
        fill(lanes, args.d, |lane| f(A::load(a(lane)), B::load(b(lane)), c >> lane & 1 != 0).store());
    }
}

shape! {
    /// `d, predicate e = f(a, b, c, predicate f)`, where `f` may be absent (false): additions with
    /// carry.
    carry<A: Lane, B: Lane, C: Lane, R: Lane>(A, B, C, bool => (R, bool))
    needs [d: R, a: A, b: B; optional c: C, e: bool, f: bool]
    |f: F, lanes: &Lanes, args: &Args| {
        let mut results = [R::Stored::default(); WARP];
        let a = lanes.source::<A::Stored>(args.a);
        let b = lanes.source::<B::Stored>(args.b);
        let c = lanes.source::<C::Stored>(if args.c.is_some() { args.c } else { args.b });
        let carry_in = if args.f.is_some() { lanes.predicate(args.f) } else { 0 };
        let mut carry_out = 0u32;
        for lane in 0..WARP {
            let carry = carry_in >> lane & 1 != 0;
            let (result, carry) = f(A::load(a[lane]), B::load(b[lane]), C::load(c[lane]), carry);
            results[lane] = result.store();
            carry_out |= u32::from(carry) << lane;
        }
        lanes.write(args.d, &results);
        if args.e.is_some() {
            lanes.write_predicate(args.e, carry_out);
        }
    }
}

/// `immediate` of [`compare`] and [`test`]: how the outcome is combined with predicate `c`.
pub(crate) mod combine {
    /// No combination.
    pub(crate) const NONE: u32 = 0;
    /// `and`.
    pub(crate) const AND: u32 = 1;
    /// `or`.
    pub(crate) const OR: u32 = 2;
    /// `xor`.
    pub(crate) const XOR: u32 = 3;
    /// Added when `c` is to be negated.
    pub(crate) const NOT: u32 = 4;
}

/// `d = outcome OP c`, `e = !outcome OP c`.
///
/// # Safety
/// The frame has the predicates that `args` names.
#[inline(always)]
unsafe fn conclude(lanes: &Lanes, args: &Args, outcome: u32) {
    let apply = |outcome: u32| {
        if args.immediate == combine::NONE {
            return outcome;
        }
        // SAFETY: the caller's promise.
        let other = unsafe { lanes.predicate(args.c) };
        let other = if args.immediate & combine::NOT != 0 { !other } else { other };
        match args.immediate & 3 {
            combine::AND => outcome & other,
            combine::OR => outcome | other,
            _ => outcome ^ other,
        }
    };
    let (first, second) = (apply(outcome), apply(!outcome));
    // SAFETY: the caller's promise.
    unsafe {
        if args.d.is_some() {
            lanes.write_predicate(args.d, first);
        }
        if args.e.is_some() {
            lanes.write_predicate(args.e, second);
        }
    }
}

shape! {
    /// Predicates `d` and `e` from `f(a, b)`, combined with `c` as [`combine`] says.
    compare<A: Lane, B: Lane>(A, B => bool)
    needs [a: A, b: B; optional c: bool, d: bool, e: bool]
    |f: F, lanes: &Lanes, args: &Args| {
        let a = lanes.reader::<A::Stored>(args.a);
        let b = lanes.reader::<B::Stored>(args.b);
        conclude(lanes, args, bits(|lane| f(A::load(a(lane)), B::load(b(lane)))));
    }
}

shape! {
    /// Predicate `d` from `f(a)`.
    test<A: Lane>(A => bool)
    needs [a: A; optional c: bool, d: bool, e: bool]
    |f: F, lanes: &Lanes, args: &Args| {
        let a = lanes.reader::<A::Stored>(args.a);
        conclude(lanes, args, bits(|lane| f(A::load(a(lane)))));
    }
}

/// Predicate `d = f(a, b, c)` on predicates, all lanes at once; absent sources read as 0.
pub(crate) fn logic<F: Fn(u32, u32, u32) -> u32 + Copy>(_: F) -> LaneHandler {
    /// # Safety
    /// See the module. A value of `F` exists, for `logic` was given one.
    unsafe fn run<F: Fn(u32, u32, u32) -> u32 + Copy>(warps: &[Lanes], args: &Args) {
        for lanes in warps {
            // SAFETY: the caller's promise.
            unsafe {
                let read = |reg: Reg| if reg.is_some() { lanes.predicate(reg) } else { 0 };
                let result = conjure::<F>()(read(args.a), read(args.b), read(args.c));
                lanes.write_predicate(args.d, result);
            }
        }
    }
    let predicate = Need::Optional(Class::Predicate);
    let needs =
        Needs { d: Need::One(Class::Predicate), a: predicate, b: predicate, c: predicate, ..Needs::NONE };
    LaneHandler { run: run::<F>, needs, meaning: Meaning::Other }
}
