//! The operands of steps: registers, and the operands of handlers.
//!
//! This module contains only data. Handlers (`registers::handler`,
//! `memory::access`, `matrix`, `image`) take these operands; [`crate::code`] combines both into
//! steps.

use ptx::instruction::Comparison;

/// A register: virtual while compiling; then an index into the frame's part of the file of its
/// class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Reg(pub u32);

impl Reg {
    /// No register.
    pub(crate) const NONE: Reg = Reg(u32::MAX);

    pub(crate) fn is_some(self) -> bool {
        self != Reg::NONE
    }

    /// These registers, and no more.
    pub(crate) fn list<const N: usize>(registers: &[Reg]) -> [Reg; N] {
        std::array::from_fn(|index| registers.get(index).copied().unwrap_or(Reg::NONE))
    }
}

/// The kind of values that a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// Up to 32 bits for each lane.
    Word,
    /// 64 bits for each lane.
    Long,
    /// One bit for each lane.
    Predicate,
}

/// The condition under which lanes execute a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Guard {
    /// All that are active.
    Always,
    /// Those with the predicate set.
    If(Reg),
    /// Those with the predicate clear.
    Unless(Reg),
}

impl Guard {
    /// The other lanes; [`Guard::Always`] has none and stays.
    pub(crate) fn inverted(self) -> Guard {
        match self {
            Guard::Always => Guard::Always,
            Guard::If(reg) => Guard::Unless(reg),
            Guard::Unless(reg) => Guard::If(reg),
        }
    }
}

/// Operands of a step on registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Args {
    /// Results.
    pub(crate) d: Reg,
    pub(crate) e: Reg,
    /// Sources.
    pub(crate) a: Reg,
    pub(crate) b: Reg,
    pub(crate) c: Reg,
    pub(crate) f: Reg,
    /// A number that the handler knows how to read.
    pub(crate) immediate: u32,
}

impl Args {
    pub(crate) const EMPTY: Args = Args {
        d: Reg::NONE,
        e: Reg::NONE,
        a: Reg::NONE,
        b: Reg::NONE,
        c: Reg::NONE,
        f: Reg::NONE,
        immediate: 0,
    };
}

/// The state space of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    /// Global and constant memory: host addresses in the device's allocations.
    Global,
    /// Offsets in the block's shared memory.
    Shared,
    /// Offsets in the thread's local memory, which also holds parameters of functions.
    Local,
    /// Host addresses in any of these.
    Generic,
}

/// Patterns that are remembered at a time.
pub(crate) const PATTERNS: usize = 8;

/// An address `base + index << shift`: what nvcc makes of the access to an element of an array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Indexed {
    /// A long that is the same in all lanes.
    pub(crate) base: Reg,
    /// A word.
    pub(crate) index: Reg,
    /// Whether the index is a signed number.
    pub(crate) signed: bool,
    pub(crate) shift: u8,
}

/// A comparison of words that a step makes, and nothing else but what
/// [`compare`](crate::registers::shapes::compare) does besides: predicate `d = a R b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WordComparison {
    /// One of `<`, `<=`, `>`, `>=`.
    pub(crate) relation: Comparison,
    pub(crate) signed: bool,
}

/// Operands of a load, store or atomic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessArgs {
    pub(crate) space: Space,
    /// Loaded or stored registers, one for each element; for atomics the old value is `data[0]`.
    pub(crate) data: [Reg; 8],
    /// Base address: a long, or a word for 32-bit addresses.
    pub(crate) address: Reg,
    /// Whether `address` is a word.
    pub(crate) narrow: bool,
    /// Added to the address.
    pub(crate) offset: i64,
    /// The parts of the address, if they are known: then `address` need not have been computed.
    pub(crate) indexed: Option<Indexed>,
    /// The index at which the pattern of the lanes is kept, below [`PATTERNS`].
    pub(crate) pattern: u8,
    /// Whether the pattern is to be found anew, whatever is remembered there.
    pub(crate) fresh: bool,
    /// The index of a pattern with the same register, if another access of the straight run has
    /// found it.
    pub(crate) like: Option<u8>,
    /// Operands of atomics (of wide ones both halves); source address (and size) of asynchronous
    /// copies.
    pub(crate) operands: [Reg; 4],
    /// Load, store or both.
    pub(crate) kind: AccessKind,
    /// Whether `data` are longs.
    pub(crate) wide: bool,
    /// For copies: bytes that a lane copies at most. For what a call moves between a register and a
    /// frame: its bytes.
    pub(crate) copied: u32,
    /// Whether a thread may do it again and again until another thread has done something.
    pub(crate) synchronises: bool,
}

/// The use of `data` by an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessKind {
    /// Writes the registers.
    Load,
    /// Reads the registers.
    Store,
    /// Reads `operands`, writes `data[0]` if there is one.
    Atomic,
    /// Reads `operands`.
    Copy,
    /// Reads `operands`, writes `data[0]` if there is one: an operation on an mbarrier.
    Mbarrier,
    /// Reads the registers: the generic addresses of the source, if it is not zeros, and of an
    /// mbarrier; `operands` has the size, and the blocks of the cluster to which it goes.
    Bulk,
    /// Reads the registers: the generic addresses of a tensor map and of an mbarrier, and
    /// coordinates; `operands` has the size and the blocks of the cluster to which it goes, and
    /// `copied` the dimensions.
    Tensor,
}

/// The use of a register by a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Use,
    Def,
}

impl Args {
    /// Shows every register, and whether it is read or written.
    pub(crate) fn registers(&mut self, show: &mut dyn FnMut(&mut Reg, Role)) {
        for reg in [&mut self.a, &mut self.b, &mut self.c, &mut self.f] {
            show(reg, Role::Use);
        }
        show(&mut self.d, Role::Def);
        show(&mut self.e, Role::Def);
    }
}
