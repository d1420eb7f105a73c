//! Sets a GPU's highest clock while a program runs, and releases it afterwards.
//!
//! * [`Nvml`] is the only place in APEX that binds functions which change a device: it sets the
//!   highest clock ([`Gpu::set_highest`]) and releases it.
//! * [`Claim`] keeps two runs from governing one device, and records a clock that was never
//!   released.
//! * [`Watchdog`] is a process that releases the clock when its parent is gone.
//! * [`Setter`] combines these three. Nothing else here sets a clock.
//! * [`Helper`] is a root service that sets clocks for other users; [`Helped`] is its client.
//! * [`Progress`] reads from the session which phase runs and how far it has come.
//! * [`Pilot`] passes readings to the governor ([`apex_governor`]) and returns the call to make. It
//!   does no input or output.
//! * [`Governing`] is the thread that reads, follows and sets.
//!
//! Invariants:
//!
//! 1. Before a call sets a clock, a live watchdog knows that a clock may be set. If the watchdog
//!    ends first, the clock is released at once, and no clock is set again.
//! 2. The clock that is set is an upper limit: the device may still run slower. So this crate never
//!    makes a device run faster than it would by itself.
//! 3. NVML has no function that reads a locked clock. Nothing is set before the device has been
//!    seen at its highest clock, which a lower lock by another tool would prevent.

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
