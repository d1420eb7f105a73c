//! Tests of the executor: text cases under `tests/ptx`, random instructions against references in Rust, and kernels
//! that need the scheduler to be fair.

mod cases;
mod corpus;
mod device;
mod floats;
mod instruction;
mod integers;
