//! Sessions while they are recorded.
//!
//! * [`recorded_now`] finds the sessions that processes of this machine record.
//! * A [`Follower`] looks at one session again and again: each [`Snapshot`] is the session as it is
//!   and the profile of its last seconds. A session that has ended is followed too: its last
//!   seconds are those before its last record. A look reads what is new, and the records of its
//!   window. It takes about 0.4 µs of CPU time for each of these and of the up to 32768 before
//!   them, 40 ms at 10,000 launches a second, for a session of 100 million records as for one of a
//!   million (measured, `docs/results/live.txt`). [`Follower::fresh`] bounds that: it reads no more
//!   than 200,000 launches.
//! * [`running`] tells which processes of a session run.
//!
//! Nothing here writes: following a session does not affect its recording.

mod follower;
mod processes;

pub use follower::{Follower, SinceStart, Snapshot};
pub use processes::{recorded_now, running};
