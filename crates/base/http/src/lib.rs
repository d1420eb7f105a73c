//! A small HTTP server for pages and figures of this machine.
//!
//! Who writes one gives [`Server::run`] a function from a [`Request`] to a [`Response`]; it may
//! compute and block, because it runs beside the thread that serves. [`Response::events`] sends
//! what changes, as server-sent events.
//!
//! Invariants:
//!
//! 1. **Nobody reaches it by accident.** It listens on loopback, or it demands a token
//!    ([`Options`]).
//! 2. **No page of another origin reads it.** On loopback the `Host` must name loopback, which a
//!    name that an attacker rebinds does not; an `Origin` must be the server's own; what a browser
//!    fetches for another site is refused.
//! 3. **It only answers.** Methods are GET and HEAD, and no request has a body, unless its options
//!    allow POST to one path ([`Posts`]). What is posted is `application/json`, which no form of
//!    another site is, uncompressed, and within the bound.
//! 4. **Everything has a bound** ([`Limits`]): bytes of a request's head, its time, connections,
//!    answers that are computed at once, event streams. Idle connections make room for new ones.
//! 5. **An encrypted address answers nothing in the clear** but that it is one.
//! 6. **Nothing is kept or interpreted by the browser**: no store, no sniffing, no referrer, no
//!    frame, and a content security policy that allows nothing unless the response says otherwise.

mod admission;
mod body;
mod connections;
mod events;
mod options;
mod request;
mod response;
mod secured;
mod server;

pub use events::{Event, Next};
pub use options::{Bearers, Error, Limits, Options, Posts, Refused, Token};
pub use request::Request;
pub use response::{Response, StatusCode};
pub use server::{Server, Stop};
