//! Conditions under which a launch may be made with other block sizes or concurrently with others,
//! and the plan of block sizes.
//!
//! A proof about a kernel's PTX holds for launches that meet a [`Condition`]: the bounds of its
//! guards lie within the launch's threads, and the memory that it writes is apart from the other
//! memory that it accesses. These depend on the launch's parameters, so they are checked at each
//! launch, by the injected library, which does not know PTX. Hence the condition is data: sums of
//! products of parameters and of thread counts.
//!
//! * [`Condition`]: what a proof yields and a profile stores.
//! * [`Checked`]: the same in flat tables, which is evaluated in some nanoseconds.
//! * [`KernelAccess`]: the memory that a kernel's launches access. [`Spans`] are its addresses at
//!   one launch, and decide whether two launches may run in any order.
//! * [`Plan`]: kernels by the hash of their PTX and name, with the blocks for each size of launch.
//!
//! # Invariants
//! 1. *Unknown means no.* An overflow, a parameter that does not exist, or a number beyond 63 bits
//!    makes a condition fail.
//! 2. An evaluation neither allocates nor panics, whatever the numbers are.

mod access;
mod checked;
mod condition;
mod given;
mod plan;
mod range;

pub use access::{
    AccessedMemory, Allocations, KernelAccess, Span, Spans, access_from_bytes, access_to_bytes,
};
pub use checked::{Checked, MOST_PARAMETER_BYTES};
pub use condition::{Apart, Bound, Condition, Product, Region, Sum, Term};
pub use given::Given;
pub use plan::{Choice, Damaged, Plan, PlannedKernel, PlannedPair, code_hash, size_class};
pub use range::Range;
