//! What can go wrong in a demo program.

use apex_driver::DriverError;
use std::fmt;

/// What a demo program comes to.
pub type Result<T = ()> = std::result::Result<T, DemoError>;

/// Why a demo program failed.
#[derive(Debug)]
pub enum DemoError {
    /// The driver refused something, or there is none.
    Driver(DriverError),
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
