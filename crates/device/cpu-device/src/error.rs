//! Errors as the driver's result codes, usable with `?`.

use cuda_abi::types::*;
use std::fmt;

/// A result code other than `CUDA_SUCCESS`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Error(pub CUresult);

/// The result of a driver call.
pub type Result<T = ()> = std::result::Result<T, Error>;

/// Fails with the code given.
pub fn fail<T>(code: CUresult) -> Result<T> {
    Err(Error(code))
}

/// Fails with the code given unless `condition` holds.
pub fn ensure(condition: bool, code: CUresult) -> Result {
    if condition { Ok(()) } else { Err(Error(code)) }
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match result_name(self.0) {
            Some(name) => formatter.write_str(name),
            None => write!(formatter, "CUresult {}", self.0),
        }
    }
}
