//! The bundled CUDA programs, which `apex demo` records and the end-to-end tests run.
//!
//! Each is an ordinary CUDA program on the driver API. The crate `apex-device-code` holds its
//! device code. Its host code opens `libcuda.so.1` like any other program, so a library that
//! stands in for the driver sees it. Inputs are random, and the host computes each result in double
//! precision to compare it.
//!
//! The programs do not depend on APEX, and APEX treats them like any other program.

mod error;
mod outcome;
mod programs;
mod random;

pub use error::DemoError;
pub use outcome::Outcome;
pub use programs::{PROGRAMS, Program};

/// The program with this name.
pub fn program(name: &str) -> Option<&'static Program> {
    PROGRAMS.iter().find(|program| program.name == name)
}
