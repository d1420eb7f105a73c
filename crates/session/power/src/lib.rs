//! Sets a GPU's highest clock while a program runs, and puts it back.
//!
//! * [`Nvml`] is the only place of APEX that binds functions which change a device: it sets the
//!   highest clock ([`Gpu::set_highest`]) and releases it.
//! * [`Claim`] keeps two runs off one device, and remembers a clock that nobody put back.
//! * [`Watchdog`] is a process that releases the clock when its parent is gone.
//! * [`Setter`] has all three. Nothing else here sets a clock.
//! * [`Helper`] has setters for users who may not set clocks; [`Helped`] is its client.
//! * [`Progress`] reads from the session which phase runs and how far it is.
//! * [`Pilot`] has the governor ([`apex_governor`]) follow these readings, and says which call to
//!   make.
//! * [`Governing`] is the thread that does all of it.
//!
//! Invariants:
//!
//! 1. A watchdog that lives knows that a clock may be set before the call is made that sets it. If
//!    the watchdog ends first, the clock is released at once, and none is set any more.
//! 2. The clock that is set is an upper limit: the device may run slower by itself. So nothing
//!    here makes a device run faster than it would.
//! 3. NVML has no function that tells which clock is locked. Nothing is set before the device was
//!    seen at its highest clock, which a lower lock of another tool would prevent.

mod claim;
mod governing;
mod helped;
mod helper;
mod nvml;
mod phases;
mod pilot;
mod progress;
mod right;
mod setter;
mod text;
mod watchdog;

pub use claim::Claim;
pub use governing::{Governing, Options};
pub use helped::Helped;
pub use helper::{Helper, SOCKET};
pub use nvml::{Error, Gpu, LIBRARY, Nvml, State, reasons};
pub use phases::{Counts, Phases};
pub use pilot::{Ended, OfPhase, Outcome, Pilot};
pub use progress::{Progress, Seen};
pub use right::may_set_clocks;
pub use setter::{NotSet, Sets, Setter};
pub use watchdog::{Watchdog, watch};
