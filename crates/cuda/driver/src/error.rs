//! Errors of a driver.

use cuda_abi::types::{CUresult, result_description, result_name};
use std::fmt;

/// The result of a call.
pub type Result<T = ()> = std::result::Result<T, DriverError>;

/// The reason why a call failed.
#[derive(Debug)]
pub enum DriverError {
    /// No CUDA driver could be opened; the loader's reason.
    NoDriver(String),
    /// The driver lacks a function: it is older than CUDA 11.4, or none at all.
    MissingFunction(&'static str),
    /// A driver call failed.
    Call {
        /// The function.
        call: &'static str,
        /// The result of the call.
        code: CUresult,
    },
    /// Device code did not compile; the driver's log.
    Compilation(String),
}

impl fmt::Display for DriverError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DriverError::NoDriver(reason) => write!(formatter, "no CUDA driver: {reason}"),
            DriverError::MissingFunction(symbol) => {
                write!(formatter, "the CUDA driver has no {symbol}: CUDA 12.0 or newer is needed")
            }
            DriverError::Call { call, code } => {
                let name = result_name(*code).unwrap_or("an unknown code");
                let meaning = result_description(*code).unwrap_or("no description");
                write!(formatter, "{call} returned {code}, {name}: {meaning}")
            }
            DriverError::Compilation(log) => write!(formatter, "the device code does not compile:\n{log}"),
        }
    }
}

impl std::error::Error for DriverError {}
