//! The code that an estimator executes: a function flattened into steps over numbered registers.
//!
//! 1. Every operand is a register; constants, parameters, addresses of variables and special
//!    registers are registers that are filled before a warp begins and never written.
//! 2. A step stands for one instruction, for several that nothing in an estimate depends on, or for
//!    a part of one; what it counts for is its [`Step::tally`].
//! 3. Functions that are called directly stand where they are called.

use ptx::Position;
use ptx::body::SpecialRegister;
use ptx::facts::Place;
use ptx::instruction::{Class, Comparison, Direction, Logic, Rounding, Shuffle, Vote};
use ptx::syntax::StateSpace;
use ptx_lower::Op;

/// Number of a register.
pub(super) type Register = u32;

/// The register that is none: a result that nobody needs.
pub(super) const NONE: Register = Register::MAX;

/// A function, ready to be estimated.
#[derive(Clone, Debug, Default)]
pub(super) struct Code {
    pub(super) steps: Vec<Step>,
    /// The number of registers.
    pub(super) registers: usize,
    /// Registers that hold something when a warp begins.
    pub(super) inputs: Vec<(Register, Input)>,
}

/// The value of a register when a warp begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Input {
    Constant(u64),
    /// Bytes of a parameter of the kernel.
    Parameter {
        index: u32,
        offset: u32,
        bytes: u32,
    },
    /// A component of a special register: 0, 1, 2 for x, y, z.
    Special(SpecialRegister, u8),
}

#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) guard: Option<Guard>,
    pub(super) action: Action,
    /// The line of the source that its access is on.
    pub(super) place: Option<Place>,
    /// Where its access stands in the PTX.
    pub(super) position: Position,
    /// Instructions that it stands for, by kind.
    pub(super) tally: Vec<(Class, u32)>,
    /// Cycles that it takes a warp which nothing but its own instructions holds back; of a stretch
    /// of code without branches the first step has those of all. See [`super::schedule`].
    pub(super) cycles: f64,
    /// Loads from global memory among these that wait for each other.
    pub(super) serial_loads: f64,
    /// Cycles for which its arithmetic keeps the units busy.
    pub(super) busy: f64,
    /// Instructions of the machine that it stands for.
    pub(super) machine: f64,
}

/// `@p` or `@!p`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guard {
    pub(super) register: Register,
    pub(super) negated: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Action {
    /// Nothing that an estimate depends on.
    Nothing,
    Compute {
        form: Computation,
        to: Register,
        from: [Register; 4],
    },
    Compare(Compare),
    Access(Access),
    /// Loads or stores a fragment of a matrix: `rows` rows, `stride` elements apart.
    Fragment {
        space: Option<StateSpace>,
        store: bool,
        rows: u32,
        element: u32,
        address: Register,
        stride: Register,
    },
    /// Lanes exchange `value`; `to` and the predicate `valid`.
    Shuffle {
        mode: Shuffle,
        to: Register,
        valid: Register,
        value: Register,
        lane: Register,
        clamp: Register,
    },
    Vote {
        vote: Vote,
        to: Register,
        from: Register,
        negated: bool,
    },
    /// Some function of its operands that is not computed.
    Unknown {
        to: Register,
        from: [Register; 4],
        kind: Kind,
    },
    Branch {
        target: usize,
    },
    Table {
        index: Register,
        targets: Vec<usize>,
    },
    Barrier,
    /// A call of a function that is not there.
    UnknownCall,
    Exit,
}

/// A comparison of `a` and `b`: `to` and its opposite `opposite`, each combined with a predicate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compare {
    pub(super) relation: Comparison,
    pub(super) kind: Kind,
    pub(super) to: Register,
    pub(super) opposite: Register,
    pub(super) a: Register,
    pub(super) b: Register,
    pub(super) combine: Option<(Logic, Guard)>,
    /// The value that `to` gets if the result is true.
    pub(super) truth: u64,
}

/// The type that the bits of a register are read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An integer of `bits` bits.
    Integer {
        bits: u32,
        signed: bool,
    },
    Single,
    Double,
}

impl Kind {
    pub(super) fn bits(self) -> u32 {
        match self {
            Kind::Integer { bits, .. } => bits,
            Kind::Single => 32,
            Kind::Double => 64,
        }
    }
}

/// A computation on numbers of one kind, with a number of another kind as its result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Computation {
    pub(super) op: Op,
    /// The rounding that is named.
    pub(super) rounding: Option<Rounding>,
    pub(super) from: Kind,
    pub(super) to: Kind,
}

#[derive(Clone, Debug)]
pub(super) struct Access {
    /// None if the address tells it. `.param` counts as `.const`.
    pub(super) space: Option<StateSpace>,
    pub(super) direction: Direction,
    pub(super) address: Register,
    pub(super) offset: i64,
    /// Bytes of a lane.
    pub(super) bytes: u32,
    /// Lanes that have an address of their own: fewer than 32 for `ldmatrix`.
    pub(super) lanes: u32,
    /// Registers that are loaded, one after the other.
    pub(super) to: Vec<Register>,
    /// The type of its elements.
    pub(super) element: Kind,
    /// For each of them, the register that holds what it is compared with, or [`NONE`].
    pub(super) below: Vec<Register>,
    /// Whether they are two neighbours' places in an array: see [`super::arrays`].
    pub(super) is_offset: bool,
    /// Of an atomic operation, what follows from what it does.
    pub(super) update: Option<Update>,
}

/// An atomic operation that is followed further than to its address.
#[derive(Clone, Copy, Debug)]
pub(super) enum Update {
    /// Stores `new` where `expected` is stored.
    CompareAndSwap { expected: Register, new: Register },
    /// Stores `new`.
    Exchange { new: Register },
    /// An integer sum, minimum, … that the assembler makes of a warp's lanes before it goes to
    /// memory, if they have one address. An operand that is not [`NONE`] must be the same in all
    /// lanes for that.
    Reduction { operand: Register },
}

/// The use of a register by a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Read,
    /// Value that an atomic operation stores or expects.
    Update,
    Write,
}

/// Shows each register of an action, that may be changed, and its role.
macro_rules! each_register {
    ($action:expr, $show:ident) => {
        match $action {
            Action::Nothing | Action::Barrier | Action::UnknownCall => {}
            Action::Exit | Action::Branch { .. } => {}
            Action::Compute { to, from, .. } | Action::Unknown { to, from, .. } => {
                from.into_iter().for_each(|from| $show(from, Role::Read));
                $show(to, Role::Write);
            }
            Action::Compare(Compare { to, opposite, a, b, combine, .. }) => {
                [a, b].into_iter().for_each(|from| $show(from, Role::Read));
                if let Some((_, guard)) = combine {
                    let Guard { register, .. } = guard;
                    $show(register, Role::Read);
                }
                [to, opposite].into_iter().for_each(|to| $show(to, Role::Write));
            }
            Action::Access(Access { address, to, update, .. }) => {
                $show(address, Role::Read);
                match update {
                    Some(Update::CompareAndSwap { expected, new }) => {
                        [expected, new].into_iter().for_each(|from| $show(from, Role::Update));
                    }
                    Some(Update::Exchange { new: from } | Update::Reduction { operand: from }) => {
                        $show(from, Role::Update);
                    }
                    None => {}
                }
                to.into_iter().for_each(|to| $show(to, Role::Write));
            }
            Action::Fragment { address, stride, .. } => {
                [address, stride].into_iter().for_each(|from| $show(from, Role::Read));
            }
            Action::Shuffle { to, valid, value, lane, clamp, .. } => {
                [value, lane, clamp].into_iter().for_each(|from| $show(from, Role::Read));
                [to, valid].into_iter().for_each(|to| $show(to, Role::Write));
            }
            Action::Vote { to, from, .. } => {
                $show(from, Role::Read);
                $show(to, Role::Write);
            }
            Action::Table { index, .. } => $show(index, Role::Read),
        }
    };
}

impl Action {
    /// The steps that it may go to instead of the next.
    pub(super) fn targets(&self) -> &[usize] {
        match self {
            Action::Branch { target } => std::slice::from_ref(target),
            Action::Table { targets, .. } => targets,
            _ => &[],
        }
    }

    /// The same, to be changed.
    pub(super) fn targets_mut(&mut self) -> &mut [usize] {
        match self {
            Action::Branch { target } => std::slice::from_mut(target),
            Action::Table { targets, .. } => targets,
            _ => &mut [],
        }
    }

    /// Calls `visit` for each register that it has in this role.
    fn each(&self, wanted: Role, mut visit: impl FnMut(Register)) {
        let mut show = |register: &Register, role| {
            if role == wanted && *register != NONE {
                visit(*register);
            }
        };
        each_register!(self, show);
    }

    /// Calls `visit` for each register that it reads, but for those of [`Action::updates_with`].
    pub(super) fn reads(&self, visit: impl FnMut(Register)) {
        self.each(Role::Read, visit);
    }

    /// Calls `visit` for each register whose number an atomic operation stores or expects.
    pub(super) fn updates_with(&self, visit: impl FnMut(Register)) {
        self.each(Role::Update, visit);
    }

    /// Calls `visit` for each register that it writes.
    pub(super) fn writes(&self, visit: impl FnMut(Register)) {
        self.each(Role::Write, visit);
    }

    /// Calls `change` for each register that it names.
    pub(super) fn rename(&mut self, change: impl Fn(Register) -> Register) {
        let show = |register: &mut Register, _| *register = change(*register);
        each_register!(self, show);
    }
}
