//! The handler of a step: a function that computes it for several warps, one after the other (see
//! [`crate::warp::batch`]), and the registers that it needs.
//!
//! # Safety
//!
//! A handler dereferences the registers that its [`Args`] name. Their classes are its [`Needs`],
//! which the compiler checks for every step. The caller promises that the [`Lanes`] point to a
//! frame that has the registers, and that the handler runs on the CPU that it was made on.

use crate::operands::{Args, Class, Reg, WordComparison};
use crate::registers::lanes::{Lanes, RegisterType, wide_vectors};

/// Computes one step, for each of some warps. See the module's safety contract.
pub(crate) type RunLanes = unsafe fn(&[Lanes], &Args);

/// A way to compute a step, and the registers that it takes.
#[derive(Clone, Copy)]
pub(crate) struct LaneHandler {
    pub(crate) run: RunLanes,
    pub(crate) needs: Needs,
    /// The comparison that it makes, if the compiler can use it.
    pub(crate) compares: Option<WordComparison>,
}

impl LaneHandler {
    /// The handler that [`registers`] has written for any CPU and for one with wide vectors.
    pub(crate) fn on_registers<A: RegisterType, R: RegisterType>(plain: RunLanes, wide: RunLanes) -> Self {
        let (a, other) = (Need::One(A::CLASS), Need::Optional(A::CLASS));
        let needs = Needs { d: Need::One(R::CLASS), a, b: other, c: other, ..Needs::NONE };
        let run = if wide_vectors() { wide } else { plain };
        LaneHandler { run, needs, compares: None }
    }

    /// The handler, which makes this comparison.
    pub(crate) fn comparing(self, compares: Option<WordComparison>) -> Self {
        LaneHandler { compares, ..self }
    }
}

/// The requirement of a handler on one of its [`Args`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// It is not looked at.
    Ignored,
    /// A register of this class.
    One(Class),
    /// A register of this class, or none.
    Optional(Class),
}

/// The requirements of a handler on its [`Args`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(super) d: Need,
    pub(super) e: Need,
    pub(super) a: Need,
    pub(super) b: Need,
    pub(super) c: Need,
    pub(super) f: Need,
}

impl Needs {
    pub(super) const NONE: Needs = Needs {
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
