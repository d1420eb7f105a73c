//! The messages between the injected library and `apex run --fast=schedule`.
//!
//! The library connects to [`SOCKET`] in the session, once for each PTX that the program loads, and
//! sends [`HEAD`], the length of the PTX (u64, little-endian) and the PTX. The answer is the length
//! of the kernels' serialised access sets (u64), and these bytes
//! (`launch_condition::access_from_bytes`).

use std::time::Duration;

/// Name of the socket in the session.
pub const SOCKET: &str = "access.sock";
/// Maximum time that either side waits for the other.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum time for the analysis of one module; the remaining kernels stay unknown.
pub const ANALYSIS: Duration = Duration::from_millis(1500);
/// Maximum size of the PTX and of the answer, bytes.
pub const MOST_BYTES: usize = 8 << 20;
/// The first bytes of a request; they change with its form. The length follows.
pub const HEAD: [u8; 4] = *b"APA1";
