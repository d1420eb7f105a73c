//! Messages to addresses that the user names.
//!
//! A [`Target`] is an address that the user gave, [`post`](Target::post) sends one body to it,
//! [`ask`](Target::ask) asks its server anything else and reads the answer, and an [`Outbox`] sends
//! messages one after the other on a thread of its own, so that whoever puts them in never waits.
//!
//! Invariants:
//!
//! 1. **Only what the user names is contacted.** A redirect is an error, not another address.
//! 2. **Everything has a bound**: the time of an attempt, the bytes that are read of an answer,
//!    attempts, messages that wait. What does not fit is counted, and the newest stays.
//! 3. **Secrets stay secret.** Tokens stand in the path or the query of an address: what is shown
//!    of it ends before them ([`Target::shown`]), and nothing that is received is shown.
//! 4. **A server that is asked for by `https` proves that it is the one**, by a certificate of the
//!    system's authorities or of those that the user names ([`Target::with_trusted`]).

mod body;
mod outbox;
mod target;

pub use outbox::{Event, Outbox, Policy};
pub use target::{Answer, Failure, Invalid, Question, Target};
