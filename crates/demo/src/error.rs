//! What can go wrong in a demo program.

use cuda_abi::types::{CUresult, result_description, result_name};
use std::fmt;

/// What a demo program comes to.
pub type Result<T = ()> = std::result::Result<T, DemoError>;

/// Why a demo program failed.
#[derive(Debug)]
pub enum DemoError {
    /// No CUDA driver could be opened; the loader's reason.
    NoDriver(String),
    /// The driver lacks a function: it is older than CUDA 11.4, or none at all.
    MissingFunction(&'static str),
    /// A driver call failed.
    Call {
        /// The function.
        call: &'static str,
        /// What it returned.
        code: CUresult,
    },
    /// Device code did not compile; the driver's log.
    Compilation(String),
    /// The device computed something else than the host.
    Wrong {
        /// What was computed.
        what: &'static str,
        /// Which element of it.
        index: usize,
        /// What the host computed, in double precision.
        expected: f64,
        /// What the device computed.
        found: f64,
        /// How far apart the two may be.
        allowed: f64,
    },
}

impl fmt::Display for DemoError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DemoError::NoDriver(reason) => write!(formatter, "no CUDA driver: {reason}"),
            DemoError::MissingFunction(symbol) => {
                write!(formatter, "the CUDA driver has no {symbol}: CUDA 12.0 or newer is needed")
            }
            DemoError::Call { call, code } => {
                let name = result_name(*code).unwrap_or("an unknown code");
                let meaning = result_description(*code).unwrap_or("no description");
                write!(formatter, "{call} returned {code}, {name}: {meaning}")
            }
            DemoError::Compilation(log) => write!(formatter, "the device code does not compile:\n{log}"),
            DemoError::Wrong { what, index, expected, found, allowed } => write!(
                formatter,
                "{what} [{index}] is {found}, which is more than {allowed:e} off the reference, {expected}"
            ),
        }
    }
}

impl std::error::Error for DemoError {}
