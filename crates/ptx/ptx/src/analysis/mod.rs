//! Facts that follow from the code and from addresses, without executing anything.
//!
//! [`Request`] is the one calculator of what the lanes of a warp ask of a memory: sectors,
//! wavefronts, bank conflicts. The estimate of a launch (`ptx-estimate`) asks it about the
//! addresses that it computes, the executor about those that it counts, so the two agree wherever
//! they see the same addresses. [`SharedLayout`] says where shared variables lie,
//! [`static_shared_bytes`] how many bytes of them a kernel has. [`Values`] says what registers and
//! addresses hold: sums of thread, block, parameters and induction variables.

mod definitions;
mod request;
mod shared;
mod sum;
mod values;

pub use definitions::{Cursor, Definition, Definitions, Origin};
pub use request::{BANKS, LANES, MOST_TOUCHED, Request, SECTOR, Wavefronts};
pub(crate) use shared::named;
pub use shared::{SharedLayout, static_shared_bytes};
pub use sum::{Atom, AtomId, Sum, SumId, Sums, Term};
pub use values::{Address, Element, Values};
