//! The messages between the injected library and `apex run --fast=schedule`.
//!
//! The library connects to [`SOCKET`] in the session, once for each PTX that the program loads, and
//! sends a [`HEAD`] of its length (u64, least byte first) and the PTX. The answer is the length of
//! the kernels' access sets as data (u64), and the data (`launch_condition::access_from_bytes`).

use std::time::Duration;

/// Name of the socket in the session.
pub const SOCKET: &str = "access.sock";
/// Longest wait of either side for the other.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// Longest time that the kernels of one module are looked at; those that are left stay unknown.
pub const ANALYSIS: Duration = Duration::from_millis(500);
/// Largest PTX that is sent, and largest answer, bytes.
pub const MOST_BYTES: usize = 8 << 20;
/// The first bytes of a request; they change with its form. The length follows.
pub const HEAD: [u8; 4] = *b"APA1";
