//! Random PTX, run by two CUDA drivers and compared bit by bit.
//!
//! [`generate`] makes programs; [`workers`] runs them on a driver, any `libcuda.so.1`; a [`corpus`]
//! holds programs and a [`recording`] of what a GPU computed; [`compare`] holds another driver's
//! results against it. Where the CPU device differs from the GPU, [`known_differences`] has the
//! reason; any other difference is an error.
//!
//! A *program* is a kernel for one instruction form, or for one seed of a generator of longer
//! programs. A *result* is one value that one thread computed: for single instructions one
//! execution with operands of its own.

pub mod case;
pub mod compare;
pub mod corpus;
pub mod coverage;
pub mod digest;
pub mod generate;
pub mod image;
pub mod kernel;
pub mod known_differences;
pub mod random;
pub mod recording;
pub mod report;
pub mod runner;
pub mod tensor;
pub mod values;
pub mod workers;
