//! The executable form of a kernel: a list of steps over registers of 32 lanes.
//!
//! The compiler ([`crate::compile`]) writes steps over virtual registers, allocates places, and
//! renames. Rules:
//!
//! 1. Every operand is a register. Constants, parameters and special registers are [`Input`]s:
//!    registers that are filled before the function runs and never written, so steps do not
//!    distinguish kinds of operands.
//! 2. Registers come in three classes. A *word* is 32 lanes of 32 bits (the upper bits of 8- and
//!    16-bit registers are undefined), a *long* 32 lanes of 64 bits, a *predicate* one bit for each
//!    lane. Each class has its own register file (see [`crate::registers`]).
//! 3. A step affects only the lanes of its mask, and possibly lanes that have exited.
//! 4. A loop is contiguous, and a join comes after the paths that it joins: the lanes furthest
//!    behind have the smallest program counter. [`crate::warp`] uses this only for reconvergence;
//!    results do not depend on it.

mod input;
pub(crate) mod prologue;
mod step;

use crate::native::Native;
use crate::operands::{Class, Reg};
use crate::registers::Extent;
pub(crate) use input::{ClusterInput, Input};
use prologue::Prologue;
pub(crate) use step::{
    BarrierKind, Builtin, Call, Callee, Clock, FloatChoice, Op, Reduction, RuntimeCall, Step, Transfer,
    WarpOp,
};

/// The origin of an instruction.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// Line in the PTX.
    pub(crate) line: u32,
    pub(crate) mnemonic: ptx::Mnemonic,
    pub(crate) operation: ptx::instruction::Operation,
    pub(crate) source: Option<Source>,
}

/// The source position that the last `.loc` before an instruction gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// File index and line.
    pub(crate) at: (u32, u32),
    /// File index and line of the call that was replaced by the function's body.
    pub(crate) inlined_at: Option<(u32, u32)>,
}

/// The classes of the registers of steps: of each those that [`Step::registers`] shows, in that
/// order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classes {
    all: Vec<Class>,
    /// The start of each step's classes.
    starts: Vec<u32>,
}

impl Classes {
    /// Adds a step.
    pub(crate) fn push(&mut self, step: &mut Step, class: impl Fn(Reg) -> Class) {
        self.starts.push(self.all.len() as u32);
        step.registers(&mut |reg, _| self.all.push(class(*reg)));
    }

    pub(crate) fn of_step(&self, step: u32) -> &[Class] {
        let step = step as usize;
        let end = self.starts.get(step + 1).map_or(self.all.len(), |&end| end as usize);
        &self.all[self.starts[step] as usize..end]
    }
}

/// A compiled function.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    pub(crate) steps: Vec<Step>,
    pub(crate) classes: Classes,
    /// For each step the index of its origin.
    pub(crate) origin_of: Vec<u32>,
    pub(crate) origins: Vec<Origin>,
    /// The regions that can become machine code.
    pub(crate) native: Native,
    /// The prologue, if batches may pass it.
    pub(crate) prologue: Option<Prologue>,
    /// Registers to fill at the start.
    pub(crate) inputs: Vec<(Reg, Class, Input)>,
    /// Registers that a frame takes.
    pub(crate) registers: Extent,
    /// Bytes of local memory that a frame takes: parameters, then variables.
    pub(crate) frame_bytes: u32,
    /// The reasons why steps are [`Op::Unsupported`].
    pub(crate) unsupported: Vec<String>,
    /// Functions that it calls by name.
    pub(crate) calls: Vec<u32>,
    /// Whether it calls through pointers.
    pub(crate) calls_indirectly: bool,
    /// Shared variables that it names.
    pub(crate) shared: Vec<u32>,
    /// Variables in its frame, by offset.
    pub(crate) variables: Vec<Named>,
}

/// A variable as a message names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) name: String,
    /// Offset in its memory.
    pub(crate) start: u64,
    pub(crate) bytes: u64,
}
