//! Frames of the Python interpreter.
//!
//! All is read from the interpreter's memory, at offsets that depend on its version ([`layout`]). A
//! code object counts as one only if its type is `PyCode_Type`.
//!
//! Interpreters whose frames are read: CPython 3.9 to 3.14 that export their symbols, with a GIL.
//! Free-threaded builds, builds that trace references, and other versions give no frames.

pub mod code;
mod frames;
mod layout;
mod threads;

pub use frames::{Frame, Frames};
pub use layout::Symbols;
pub use threads::{Gil, ThreadState};

use crate::memory::Memory;
use layout::Layout;

/// An interpreter.
pub struct Interpreter {
    /// Address of `PyCode_Type`.
    code_type: u64,
    /// Address of `_PyRuntime`.
    runtime: u64,
    /// As `Py_Version` has it; without the last three numbers before 3.11.
    version: u32,
    layout: Layout,
    memory: Memory,
}

impl Interpreter {
    /// The interpreter whose symbols these are, in this memory; `None` for one whose frames cannot
    /// be read.
    pub fn find(memory: Memory, symbols: Symbols<'_>) -> Option<Interpreter> {
        let (version, layout) = Layout::of(&memory, symbols)?;
        let code_type = symbols(c"PyCode_Type")?;
        Some(Interpreter { code_type, runtime: symbols(c"_PyRuntime")?, version, layout, memory })
    }

    /// An address in the interpreter's file: that of `_PyRuntime`.
    pub fn address(&self) -> u64 {
        self.runtime
    }

    /// Major, minor and patch version; the patch version is `None` before 3.11.
    pub fn version(&self) -> (u32, u32, Option<u32>) {
        let [major, minor, patch, _] = self.version.to_be_bytes().map(u32::from);
        (major, minor, (minor > 10).then_some(patch))
    }
}
