//! Sessions while they are recorded.
//!
//! * [`recorded_now`] finds the sessions that processes of this machine record.
//! * A [`Follower`] looks at one session again and again: each [`Snapshot`] is the session as it is
//!   and the profile of its last seconds. A session that has ended is followed too: its last
//!   seconds are those before its last record.
//! * [`running`] tells which processes of a session run.
//!
//! Nothing here writes: a session that is followed is recorded as if nobody looked.

mod follower;
mod processes;

pub use follower::{Follower, Snapshot};
pub use processes::{recorded_now, running};
