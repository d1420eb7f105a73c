//! Handlers from closures on scalars.
//!
//! The meaning of an instruction is written once, as a closure on scalars; [`unary`], [`binary`],
//! [`compare`] and the other *shapes* turn it into a [`LaneHandler`] that applies it to whole
//! registers. Each handler is compiled twice, for any CPU and for CPUs with wide vectors, and one
//! version is selected when the handler is made.
//!
//! Shapes compute all 32 lanes and keep those of the mask, so that the loop vectorises. A
//! computation of several stages is a function of whole [`registers`], and each stage is a loop.

use std::ptr::NonNull;

use crate::operands::{Args, Class, Reg};
use crate::registers::handler::{LaneHandler, Need, Needs};
use crate::registers::lanes::{Lane, Lanes, RegisterType, Stored, WARP, map, wide_vectors};
use crate::registers::pattern::{PART, PARTS};
use crate::registers::vectors::{ACTIVE, signs};

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
            /// See the module `handler`. A value of `F` exists, for `$name` was given one.
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
            /// See the module `handler`. A value of `F` exists, for `$name` was given one.
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
                $($field: Need::One(<$held as RegisterType>::CLASS),)*
                $($($maybe: Need::Optional(<$maybe_held as RegisterType>::CLASS),)*)?
                ..Needs::NONE
            };
            #[cfg(target_arch = "x86_64")]
            if wide_vectors() {
                return LaneHandler { run: wide::<$($param,)* F>, needs, compares: None };
            }
            LaneHandler { run: plain::<$($param,)* F>, needs, compares: None }
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

/// `d = f(a, b, c, immediate)` on whole registers of `u32` or `u64`, written `registers!(from =>
/// to, |a, b, c, immediate| f)`; `b` and `c` are `a` where they are absent.
///
/// A macro, because a closure that is handed on is compiled for any CPU, unless it is so small that
/// it disappears.
macro_rules! registers {
    ($from:ty => $to:ty, |$a:pat_param, $b:pat_param, $c:pat_param, $immediate:pat_param| $body:expr) => {{
        use $crate::operands::Args;
        use $crate::registers::handler::LaneHandler;
        use $crate::registers::lanes::{Lanes, Register};
        /// # Safety
        /// See the module `handler`.
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
        /// See the module `handler`.
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
    /// See the module `handler`. A value of `F` exists, for `logic` was given one.
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
    LaneHandler { run: run::<F>, needs, compares: None }
}
