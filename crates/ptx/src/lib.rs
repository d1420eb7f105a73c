//! PTX, the assembly language of CUDA: text to IR and back, the table of its instructions, and a verifier.
//!
//! ```
//! let source = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry nothing() { ret; }\n";
//! let module = ptx::parse(source).map_err(|error| error.render("nothing.ptx", source)).unwrap();
//! assert_eq!(&*module.functions().next().unwrap().name, "nothing");
//! ```
//!
//! Everything that NVRTC, nvcc and Triton write parses, whatever the version: see [`ir`] for how. Which instructions
//! exist, with which operands, for which targets, is in [`forms`]; [`verify`](mod@verify) tells whether a module is right;
//! [`mix`] counts what a kernel is made of, [`walk`] what a launch of it executes.
//! Invariants:
//!
//! 1. No input makes the parser panic, recurse without bound, or take more than linear time and space.
//! 2. `parse(print(parse(x)))` equals `parse(x)`.
//! 3. This crate knows nothing of CUDA, files or threads.
pub mod diagnostic;
pub mod forms;
pub mod ir;
mod lexer;
pub mod link;
pub mod mix;
mod parse;
mod print;
pub mod types;
pub mod verify;
pub mod walk;

pub use diagnostic::Diagnostic;
pub use ir::*;
pub use link::link;
pub use mix::{Class, Mix};
pub use parse::parse;
pub use types::{ScalarType, StateSpace};
pub use verify::verify;
