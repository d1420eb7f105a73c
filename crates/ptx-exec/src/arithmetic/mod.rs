//! Arithmetic of PTX, bit for bit: on numbers, and on whole registers.
//!
//! `soft` is the definition of floating point: every operation exact, then rounded once. What is
//! fast is tested against it: `numbers` and `half` are formats as the hardware has them;
//! `half_arithmetic`, `half_extremum`, `directed`, `approximate` and `convert` compute on 32 lanes
//! at a time; `quotient` divides integers as vectors can.

pub(crate) mod approximate;
pub(crate) mod convert;
pub(crate) mod directed;
pub(crate) mod half;
pub(crate) mod half_arithmetic;
pub(crate) mod half_extremum;
pub(crate) mod numbers;
pub(crate) mod permute;
pub(crate) mod quotient;
pub(crate) mod soft;
