//! Faults that stop a kernel, with their place and details.

use std::fmt;

/// The reason why a kernel was stopped. The driver turns it into CUDA's error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// An access outside every allocation, or a write to memory that may only be read.
    OutOfBounds,
    /// An address that is not a multiple of the access's size.
    Misaligned,
    /// An instruction whose operands make no sense, such as a call to an address that is no
    /// function.
    IllegalInstruction,
    /// `trap` or `brkpt`.
    Trap,
    /// A failed `assert`.
    Assert,
    /// An instruction that this device does not execute.
    Unsupported,
    /// Recursion beyond the stack.
    StackOverflow,
    /// The host has no memory for the stacks and registers of the threads.
    OutOfMemory,
    /// Every thread of a block waits for a barrier or for lanes that never come.
    Deadlock,
    /// The launch was cancelled from outside.
    Cancelled,
    /// The launch itself is impossible: too many threads, too much shared memory, parameters of the
    /// wrong size.
    InvalidLaunch,
}

/// A kernel that was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The reason.
    pub kind: FaultKind,
    /// A sentence about what happened.
    pub text: String,
    /// Name of the kernel.
    pub kernel: String,
    /// `%ctaid` of the block.
    pub block: [u32; 3],
    /// `%tid` of the (first) thread.
    pub thread: [u32; 3],
    /// Address of the access, for memory faults.
    pub address: Option<u64>,
    /// Mnemonic of the instruction.
    pub instruction: String,
    /// Line of the instruction in the PTX text, from 1; 0 if there is none.
    pub line: u32,
    /// File and line that the PTX's `.loc` gives for the instruction.
    pub source: Option<(String, u32)>,
    /// The place at which the function with this line was inlined, if it was.
    pub inlined_at: Option<(String, u32)>,
}

impl Fault {
    /// Everything but kind and kernel, a line for each thing, indented.
    pub fn details(&self) -> String {
        let ([bx, by, bz], [tx, ty, tz]) = (self.block, self.thread);
        let mut lines = format!("    {}\n    block ({bx},{by},{bz}), thread ({tx},{ty},{tz})", self.text);
        if self.line != 0 {
            lines += &format!("\n    at {} (PTX line {})", self.instruction, self.line);
        }
        if let Some((file, line)) = &self.source {
            lines += &format!("\n    from {file}:{line}");
        }
        if let Some((file, line)) = &self.inlined_at {
            lines += &format!(", inlined at {file}:{line}");
        }
        lines
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [bx, by, bz] = self.block;
        let [tx, ty, tz] = self.thread;
        write!(
            out,
            "{} in kernel {}, block ({bx},{by},{bz}), thread ({tx},{ty},{tz})",
            self.text, self.kernel
        )?;
        if self.line != 0 {
            write!(out, ", at {} (PTX line {})", self.instruction, self.line)?;
        }
        if let Some((file, line)) = &self.source {
            write!(out, ", from {file}:{line}")?;
        }
        if let Some((file, line)) = &self.inlined_at {
            write!(out, ", inlined at {file}:{line}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}

/// A fault, before the launch adds what it knows.
#[derive(Debug)]
pub(crate) struct Stop {
    pub(crate) kind: FaultKind,
    pub(crate) text: String,
    pub(crate) address: Option<u64>,
    /// The thread, counted through the block.
    pub(crate) thread: u32,
    /// Function and step.
    pub(crate) place: Option<(u32, u32)>,
}

impl Stop {
    /// A fault of which nothing is known but its kind.
    pub(crate) fn nowhere(kind: FaultKind, text: &str) -> Self {
        Stop { kind, text: text.to_owned(), address: None, thread: 0, place: None }
    }
}
