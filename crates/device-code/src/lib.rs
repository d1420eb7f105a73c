//! Device code: CUDA C++ sources, and the PTX compiled from them, which is checked in, so that a build needs no nvcc.

/// The PTX of one CUDA C++ file.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    /// Name of the file without extension.
    pub name: &'static str,
    /// The PTX.
    pub ptx: &'static str,
}

pub mod suite;
