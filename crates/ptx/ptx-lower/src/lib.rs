//! The meaning of instructions, decoded once.
//!
//! A [`Meaning`] says what an instruction computes of its sources: the operation, the type that it
//! computes in, and the modifiers that change the result. Its signature gives the types of the
//! operands. Engines choose how they compute it: the executor (`ptx-exec`) has a function on whole
//! registers for each meaning, the estimate (`ptx-estimate`) computes near enough. [`scalar`] has
//! the functions on bits that both use.
//!
//! Invariants:
//!
//! 1. *Nothing is dropped.* Decoding takes the modifiers that it understands out of the
//!    [`Operation`](ptx::instruction::Operation). Those that are left change the instruction in a
//!    way that its meaning does not tell: who executes refuses them.
//! 2. *A meaning is not a promise.* It exists for types that an operation does not have
//!    (`popc.b16`); an engine knows which ones it computes.
//! 3. Meanings exist for instructions that compute one result of registers and constants (and
//!    perhaps the opposite of a predicate), and do nothing else. Those that load, store or change
//!    memory have a [`Memory`] instead.

mod bits;
mod compare;
mod convert;
mod float;
mod integer;
mod meaning;
pub mod memory;
pub mod scalar;

pub use compare::{holds, turned};
pub use convert::element;
pub use float::take_direction;
pub use meaning::{Meaning, Modifiers, Op};
pub use memory::Memory;
