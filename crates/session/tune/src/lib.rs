//! Tunes the blocks of a program's launches on the program's own launches.
//!
//! A [`Tuning`] goes through three runs of the program:
//!
//! 1. [`Tuning::begin`] reads a recorded session: for each kernel that takes time, it asks for a
//!    proof that other blocks change no result, and which blocks the models keep ([`candidates`]).
//! 2. In the *search*, each launch draws between the program's block and the candidates
//!    ([`Tuning::search`]). The best candidate is the one with the least median of paired ratios.
//! 3. In the *confirmation*, launches draw between the program's block and the best candidate alone
//!    ([`Tuning::confirmation`]). Only these pairs decide, because the candidate was not chosen by
//!    them.
//!
//! The result is a document ([`document`]), from which [`Tuning::plan`] makes the plan that the
//! injected library follows.
//!
//! # Invariants
//! 1. *The program's block stays on a tie*: another one is chosen only if the 95% interval of the
//!    median paired ratio lies below [`MOST_RATIO`].
//! 2. *Every kernel that keeps its block has a reason.*

mod candidates;
pub mod compare;
pub mod document;
mod found;
mod pairs;
mod samples;
mod tuning;

pub use compare::Ratio;
pub use pairs::{Member, Origin, Pair};
pub use tuning::{Change, Kept, MOST_RATIO, Refused, Size, Tried, Tuned, Tuning};
