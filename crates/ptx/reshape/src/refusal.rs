//! The answer no: which instruction forbids another shape, and why.

use std::fmt;

/// The reason of a [`Refusal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reason {
    /// The module has no such kernel, or no code for it.
    NoCode,
    /// The kernel is too long to be analysed.
    TooLong,
    /// The module is not what the analysis expects: 32-bit addresses, names without declaration.
    Malformed,
    /// The kernel demands a block, a cluster or something else of its launch.
    Directive,
    /// Threads of a block or a warp work together, or something else that no proof covers is done.
    Instruction,
    /// A special register tells the place of the thread in its block or on the device.
    Special,
    /// A value depends on thread or block in another way than through the thread's index in the
    /// grid.
    Index,
    /// A register may be read before it is written.
    Undefined,
    /// Memory is accessed through a pointer that is no parameter of the kernel.
    Pointer,
    /// Two threads may store to the same address.
    SharedStore,
    /// A thread may read what another one stores.
    ForeignLoad,
    /// The result of an atomic operation is used, or depends on the order.
    Atomic,
    /// The launch is cooperative, has clusters, or is one that CUDA rejects.
    Launch,
    /// The shape is not one that CUDA or the kernel allows.
    Shape,
    /// The shape has more threads, and the kernel uses the number of all threads.
    Total,
    /// The shape has more threads, and not everything that they would do is guarded.
    Unguarded,
    /// The shape has more threads, and the guard lets some of them work in this launch.
    Bound,
    /// A number may wrap in this launch.
    Overflow,
    /// Memory that is written may overlap other memory that is accessed in this launch.
    Overlap,
}

impl Reason {
    /// Meaning, as a sentence without full stop.
    pub fn sentence(self) -> &'static str {
        match self {
            Reason::NoCode => "the module has no code of this kernel",
            Reason::TooLong => "the kernel is too long to be analysed",
            Reason::Malformed => "the PTX is not what a compiler writes for 64-bit programs",
            Reason::Directive => "the kernel demands something of its launch",
            Reason::Instruction => "no proof covers this instruction",
            Reason::Special => "this register tells where the thread runs",
            Reason::Index => "the value depends on the block other than through the thread's index",
            Reason::Undefined => "the register may be read before it is written",
            Reason::Pointer => "the pointer is no parameter of the kernel",
            Reason::SharedStore => "two threads may store to the same address",
            Reason::ForeignLoad => "a thread may read what another thread stores",
            Reason::Atomic => "the result of the atomic operation is used or depends on the order",
            Reason::Launch => "the launch is cooperative, has clusters, or is invalid",
            Reason::Shape => "CUDA or the kernel does not allow blocks of this shape",
            Reason::Total => "the kernel uses the number of all threads, which would change",
            Reason::Unguarded => "additional threads would execute this",
            Reason::Bound => "the guard would let additional threads work in this launch",
            Reason::Overflow => "an index may wrap in this launch",
            Reason::Overlap => "memory that is written may overlap other memory in this launch",
        }
    }
}

/// A place in the code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// The instruction as PTX text; empty if the refusal is not about one.
    pub instruction: String,
    /// Its line in the PTX, from 1; 0 if there is none.
    pub line: u32,
    /// File and line of the source, where `.loc` gives them.
    pub source: Option<(String, u32)>,
}

/// Reason for which a kernel or a launch keeps its shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Refusal {
    /// The reason.
    pub reason: Reason,
    /// The place that it is about.
    pub place: Place,
}

impl Refusal {
    /// A refusal that is not about an instruction.
    pub fn of(reason: Reason) -> Refusal {
        Refusal { reason, place: Place::default() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.reason.sentence())?;
        if !self.place.instruction.is_empty() {
            write!(out, ": `{}` (PTX line {}", self.place.instruction, self.place.line)?;
            if let Some((file, line)) = &self.place.source {
                write!(out, ", {file}:{line}")?;
            }
            out.write_str(")")?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}
