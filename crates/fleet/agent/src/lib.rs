//! What `apex run` tells a hub.
//!
//! [`Agent::start`] starts a thread that makes an aggregate of the session ([`aggregate`]) again
//! and again, puts it into a spool and tries to deliver what is there. [`Agent::finish`] does so
//! once more, of the whole session.
//!
//! Invariants:
//!
//! 1. **The program never waits.** The thread belongs to `apex run` and only reads the session.
//! 2. **It is cheap.** Reading a session takes time that grows with its length, so the next reading
//!    comes after [`REST`] times that time at the earliest. Meanwhile the hub gets the last figures
//!    again, and knows that the program runs.
//! 3. **Nothing is lost when something dies**: an aggregate is on the disk before it is sent, and
//!    leaves the disk when the hub has confirmed it.
//! 4. **Raw data stays where it is.** A message has the figures of `apex_aggregate` alone; the
//!    command's arguments are among them.

mod agent;
mod identity;
mod making;

pub use agent::{Agent, Destination, REST};
pub use identity::Identity;
pub use making::aggregate;
