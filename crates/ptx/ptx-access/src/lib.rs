//! Which memory a kernel may access.
//!
//! [`Sets::of`] follows every address of a kernel's PTX back to the parameters and variables that
//! it is computed from. What the kernel reads and writes lies in the allocations that these point
//! into, and in narrower [ranges](Range) where the code tells them. Two launches may run in either
//! order, or at the same time, if neither is a barrier and neither writes memory that the other
//! accesses. Sets are by parameter: compare the allocations that the arguments point into.
//!
//! ```
//! use ptx_access::{Base, Sets};
//! let source = "
//! .version 8.0
//! .target sm_80
//! .address_size 64
//! .visible .entry add(.param .u64 to, .param .u64 from) {
//!     .reg .b64 %q<3>;
//!     .reg .b32 %r<2>;
//!     ld.param.u64 %q1, [to];
//!     ld.param.u64 %q2, [from];
//!     ld.global.u32 %r1, [%q2];
//!     red.global.add.u32 [%q1], %r1;
//!     ret;
//! }";
//! let sets = Sets::of(&ptx::parse(source).unwrap(), "add").unwrap();
//! assert!(sets.barrier.is_none());
//! let [to, from] = sets.memory.as_slice() else { panic!("two pointers") };
//! assert_eq!(to.base, Base::Parameter { index: 0, offset: 0 });
//! assert!(to.access.atomic && !from.access.is_written());
//! ```
//!
//! # Invariants
//! 1. *A set is never too small*, for programs whose addresses lie in the allocation of a pointer
//!    that they are computed from, as CUDA C++ demands. A kernel with an address that comes from
//!    memory or a call, or that may be a number without a pointer in it, or with an instruction
//!    whose accesses are not known, is a [barrier](Barrier).
//! 2. A parameter that is added to an address counts, whether it is a pointer or a number: a number
//!    points into no allocation, and adds nothing to the set of a launch.
//! 3. The analysis does not look at control flow, so its result does not depend on the order of
//!    instructions.

mod barrier;
mod launch;
mod origin;
mod range;
mod schedulable;
mod sets;
mod text;

pub use barrier::{Barrier, Reason};
pub use launch::Extent;
pub use launch_condition::{Given, Range};
pub use schedulable::{schedulable, schedulable_kernel};
pub use sets::{Base, Memory, Parameter, Sets, Use};

/// A neglect of the analysis, which tests plant to see that they notice.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Only the first source of an instruction counts.
    FirstSource,
    /// Only the first instruction that writes a register counts.
    FirstWrite,
    /// What is loaded from global memory is no pointer.
    Loaded,
    /// What is loaded from local memory is no pointer.
    LoadedLocal,
    /// Halves of pointers that are loaded and put together are no pointer.
    Pieces,
    /// The result of a bitwise operation has no origin.
    Bits,
    /// The result of a multiplication has no origin.
    Products,
    /// The result of a shift has no origin.
    Shifts,
    /// The parts into which a register is unpacked have no origin.
    Unpacked,
    /// The result of an exchange between lanes has no origin.
    Shuffles,
    /// Functions are not looked at, and are no barrier.
    Calls,
    /// Atomic operations only read.
    Atomics,
    /// Instructions are looked at once.
    OnePass,
    /// Asynchronous copies access nothing.
    AsyncCopies,
    /// Ranges hold whatever they rest on.
    Needs,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 15] = [
        Fault::FirstSource,
        Fault::FirstWrite,
        Fault::Loaded,
        Fault::LoadedLocal,
        Fault::Pieces,
        Fault::Bits,
        Fault::Products,
        Fault::Shifts,
        Fault::Unpacked,
        Fault::Shuffles,
        Fault::Calls,
        Fault::Atomics,
        Fault::OnePass,
        Fault::AsyncCopies,
        Fault::Needs,
    ];
}
