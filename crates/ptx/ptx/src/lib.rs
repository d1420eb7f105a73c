//! PTX, the assembly language of CUDA: a front end in layers, and the analyses built on it.
//!
//! ```
//! let source = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry nothing() { ret; }\n";
//! let module = ptx::parse(source).map_err(|error| error.render("nothing.ptx", source)).unwrap();
//! assert_eq!(&*module.functions().next().unwrap().name, "nothing");
//! ```
//!
//! [`syntax`] parses and prints everything that NVRTC, nvcc and Triton write, whatever the version.
//! [`forms`] is the table of instructions: which exist, with which operands, for which targets;
//! [`needs`] says the targets of everything else.
//! [`body`] resolves the names of a function, [`instruction`] says what each instruction does,
//! [`flow`] in which order they are executed, [`analysis`] what registers and addresses hold and
//! what accesses cost. [`verify`](mod@verify) says whether a module is correct, [`mix`] counts the
//! instructions of a kernel, [`machine`] says how many instructions of the machine they become,
//! [`mod@facts`] what its code alone says about its cost, and [`link`](mod@link) joins modules.
//!
//! Invariants:
//!
//! 1. No input makes the parser panic, recurse without bound, or take more than linear time and
//!    space.
//! 2. `parse(print(parse(x)))` equals `parse(x)`.
//! 3. This crate knows nothing of CUDA, files or threads.
pub mod analysis;
pub mod body;
pub mod diagnostic;
pub mod facts;
pub mod flow;
pub mod forms;
pub mod instruction;
pub mod link;
pub mod machine;
pub mod mix;
pub mod needs;
pub mod syntax;
pub mod verify;

pub use diagnostic::{Diagnostic, Position};
pub use facts::{Fact, FactKind, facts};
pub use instruction::Class;
pub use link::link;
pub use mix::Mix;
pub use syntax::tree::*;
pub use syntax::{ScalarType, StateSpace, parse};
pub use verify::verify;
