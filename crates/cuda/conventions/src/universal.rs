//! The messages between the injected library and `apex run --universal`.
//!
//! The library connects to [`SOCKET`] in the session, once for each module that the driver refuses,
//! and sends a [`Request`] and the image. The answer is a series of offers, the one with the
//! smallest change first: the length of machine code or PTX (u64, little-endian), and its bytes.
//! After each offer the library sends a byte: 1 if the driver has loaded it, otherwise 0. A 1 ends
//! the series, and so does an offer of length 0.

use crate::variables::SESSION;
use std::time::Duration;

/// Name of the socket in the session.
pub const SOCKET: &str = "universal.sock";
/// Longest wait of either side for the other.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Largest image, and largest offer.
pub const MOST_BYTES: usize = 64 << 20;

/// Whether `apex run` listens in the session of this process.
pub fn is_wanted() -> bool {
    SESSION.path().is_some_and(|session| session.join(SOCKET).exists())
}

/// The first bytes of a request; they change with its form.
const MAGIC: [u8; 4] = *b"APU1";

/// A module that the driver has refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Compute capability of the current device: 80 for 8.0.
    pub capability: u32,
    /// What `cuDriverGetVersion` gives: 13000 for 13.0.
    pub driver_version: i32,
    /// The driver's result.
    pub result: u32,
    /// Bytes of the image, which follows.
    pub bytes: u64,
}

impl Request {
    /// Bytes of a request.
    pub const BYTES: usize = 24;

    /// The request as bytes.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&self.capability.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.driver_version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.result.to_le_bytes());
        bytes[16..].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    /// The request of these bytes; `None` if they are none, or if the image is too large.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Request> {
        let [m0, m1, m2, m3, rest @ ..] = bytes;
        let word = |place: usize| {
            u32::from_le_bytes([rest[place], rest[place + 1], rest[place + 2], rest[place + 3]])
        };
        let request = Request {
            capability: word(0),
            driver_version: word(4).cast_signed(),
            result: word(8),
            bytes: u64::from(word(12)) | u64::from(word(16)) << 32,
        };
        ([*m0, *m1, *m2, *m3] == MAGIC && request.bytes <= MOST_BYTES as u64).then_some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_what_was_sent() {
        let request = Request { capability: 80, driver_version: 13000, result: 222, bytes: 77 };
        assert_eq!(Request::from_bytes(&request.to_bytes()), Some(request));
        let large = Request { bytes: u64::MAX, ..request };
        assert_eq!(Request::from_bytes(&large.to_bytes()), None);
        assert_eq!(Request::from_bytes(&[0; Request::BYTES]), None);
    }
}
