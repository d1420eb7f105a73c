//! What follows from the code and from addresses, without executing anything.
//!
//! [`Request`] is the one calculator of what the lanes of a warp ask of a memory: sectors, wavefronts, bank conflicts.
//! The [estimate](crate::estimate) asks it about the addresses that it computes, the executor about those that it
//! counts, so the two agree wherever they see the same addresses.

mod request;

pub use request::{BANKS, LANES, MOST_TOUCHED, Request, SECTOR, Wavefronts};
