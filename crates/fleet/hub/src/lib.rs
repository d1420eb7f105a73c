//! The hub of a fleet.
//!
//! [`Hub::open`] opens the database, [`Hub::answer`] answers requests: aggregates that are posted,
//! pages, and the same as JSON (docs/fleet.md, `openapi.json`).
//!
//! Invariants:
//!
//! 1. **What is confirmed is committed.** An aggregate is confirmed after the transaction that
//!    stores it has reached the disk; several that come at once share a transaction.
//! 2. **Each recording counts once.** The transaction that stores an aggregate takes the sums of
//!    the one that it replaces back. What was delivered twice, late or in another order changes
//!    nothing. No window of time is involved, and no clock.
//! 3. **Everything has a bound**: bytes of a message, its texts, lists and numbers
//!    ([`apex_aggregate`]), distinct names that get sums of their own ([`MOST_NAMES`]).
//! 4. **A tenant sees its own.** Every query names the tenant of the request's token. Tokens are
//!    stored as SHA-256 of 256 random bits.
//! 5. **What is refused is counted**, by reason, and the hub's page shows it.

pub mod alerts;
mod api;
mod document;
pub mod export;
mod exposition;
mod health;
mod html;
mod pages;
mod parameters;
mod report;
pub mod segments;
mod store;
mod writer;

pub use api::{Hub, Settings};
pub use health::Outcome;
pub use store::{Error, LOCAL, MOST_NAMES, Store, unpacked};
