//! Arithmetic of PTX, bit for bit: on numbers, and on whole registers.
//!
//! `soft` defines floating point: every operation is exact and then rounded once. Tests compare the
//! fast modules with it: `numbers`, `half` and `half_numbers` use the hardware's formats;
//! `half_arithmetic`, `half_extremum`, `directed`, `approximate` and `convert` compute on 32 lanes
//! at a time; `quotient` divides integers with vector instructions, `reduction` has the operations
//! of asynchronous copies.

pub(crate) mod approximate;
pub(crate) mod convert;
pub(crate) mod directed;
pub(crate) mod half;
pub(crate) mod half_arithmetic;
pub(crate) mod half_extremum;
pub(crate) mod half_numbers;
pub(crate) mod numbers;
pub(crate) mod permute;
pub(crate) mod quotient;
pub(crate) mod reduction;
pub(crate) mod soft;
