//! Tests of the executor: text cases under `tests/ptx`, random instructions against references in
//! Rust, and kernels that need the scheduler to be fair.

#![allow(
    clippy::approx_constant,
    clippy::cast_abs_to_unsigned,
    clippy::precedence,
    clippy::result_large_err,
    clippy::type_complexity,
    reason = "references repeat what the kernels under test say, constants and order of operations included"
)]

mod addresses;
mod analysis;
mod batches;
mod cases;
mod corpus;
mod counts;
mod coverage;
mod defects;
mod device;
mod float_control;
mod floats;
mod groups;
mod instruction;
mod integers;
mod machine_code;
mod matrices;
mod narrow;
mod numbers;
mod nvcc;
mod packed;
mod prologues;
mod provided;
mod sizes;
mod tensors;
mod vectors;
mod video;
