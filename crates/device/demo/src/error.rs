//! Errors of demo programs.

use apex_driver::DriverError;
use std::fmt;

/// The result of a demo program.
pub type Result<T = ()> = std::result::Result<T, DemoError>;

/// The reason why a demo program failed.
#[derive(Debug)]
pub enum DemoError {
    /// The driver refused something, or there is none.
    Driver(DriverError),
    /// The device computed something else than the host.
    Wrong {
        /// The computed quantity.
        what: &'static str,
        /// The index of the element.
        index: usize,
        /// The host's result, in double precision.
        expected: f64,
        /// The device's result.
        found: f64,
        /// The allowed difference.
        allowed: f64,
    },
}

impl From<DriverError> for DemoError {
    fn from(error: DriverError) -> Self {
        DemoError::Driver(error)
    }
}

impl fmt::Display for DemoError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DemoError::Driver(error) => error.fmt(formatter),
            DemoError::Wrong { what, index, expected, found, allowed } => write!(
                formatter,
                "{what} [{index}] is {found}, which is more than {allowed:e} off the reference, {expected}"
            ),
        }
    }
}

impl std::error::Error for DemoError {}
