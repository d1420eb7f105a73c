//! TLS for connections that are open already.
//!
//! A [`Server`] has a certificate and its key, a [`Client`] knows whose certificates it trusts.
//! Both turn a TCP connection into an encrypted one.
//!
//! Invariants:
//!
//! 1. **By default, only the system's authorities are trusted.** A user who names a file of
//!    certificates trusts those alone: authorities, or certificates of servers themselves.
//! 2. **A certificate is checked or the connection fails.** There is no switch that leaves it out.
//! 3. **A build without TLS says so.** Without the feature `rustls`, the same types exist, but no
//!    value of them can be made, and [`Error::LeftOut`] says how to get it.

#[cfg(feature = "rustls")]
mod built;
#[cfg(feature = "rustls")]
mod trust;

#[cfg(not(feature = "rustls"))]
mod left_out;
#[cfg(not(feature = "rustls"))]
use left_out as built;

pub use built::{Client, ClientStream, Server, ServerStream};

/// Whether this build speaks TLS.
pub const IS_BUILT: bool = cfg!(feature = "rustls");

/// The first byte that a client of TLS sends: a handshake's record.
pub const FIRST_BYTE: u8 = 0x16;

/// The reason why there is no TLS.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The build has none.
    #[error(
        "this apex was built without TLS: install a package, or build with cargo build --release --features apex-cli/tls"
    )]
    LeftOut,
    /// The file of certificates has none, or none that can be read.
    #[error("the certificate cannot be used: {0}")]
    Certificate(String),
    /// The file of the key has none, or one of another certificate.
    #[error("the key cannot be used: {0}")]
    Key(String),
    /// Nobody is trusted.
    #[error("no certificate in it can be used: give a file that begins with -----BEGIN CERTIFICATE-----")]
    NothingTrusted,
    /// The system names no authorities.
    #[error("this system has no file of certificate authorities: install ca-certificates, or name a file")]
    NoAuthorities,
}
