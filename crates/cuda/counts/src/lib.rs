//! The vocabulary of counts: the counts and defects that a device which executes kernels itself
//! finds in a launch, and the facts that the code alone tells about its cost ([`FactKind`]).
//!
//! The executor counts in these types, session files hold them, the profile adds them up, rules
//! match them, and documents name them: a kind of count is described here and nowhere else.
//!
//! Counts use the words of Nsight Compute and are no measurement of time: exact, or scaled from a
//! sample of a long launch ([`Counted::watched`]). A *request* is one memory instruction of a warp;
//! it takes *transactions*: 32-byte sectors for global memory, wavefronts for shared memory.
//! *Excess* transactions are those beyond what the same bytes would take laid out one after the
//! other. Sums saturate.

mod classes;
mod facts;
mod lines;
mod places;
mod sums;
mod traffic;

pub use classes::{InstructionClass, Width};
pub use facts::FactKind;
pub use lines::{Line, LineCounts, MAX_LINES};
pub use places::{Defect, Fault, Hotspot, MAX_HOTSPOTS, Place};
pub use sums::{Counted, Counts};
pub use traffic::{Direction, Space, Traffic};
