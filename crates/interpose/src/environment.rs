//! The variables through which `apex run` speaks to this library. They are read at the first driver call.

use std::path::PathBuf;

/// The session directory, an absolute path. Without it nothing is recorded and every call is forwarded.
pub const SESSION: &str = "APEX_SESSION";
/// The driver to forward to, an absolute path. Without it the driver is searched for ([`crate::locate`]).
pub const DRIVER: &str = "APEX_DRIVER";
/// `1` makes the library bare jumps to the driver, whatever else is set.
pub const DISABLE: &str = "APEX_DISABLE";

/// The session directory.
pub fn session() -> Option<PathBuf> {
    path(SESSION)
}

/// The driver that the user names.
pub fn driver() -> Option<PathBuf> {
    path(DRIVER)
}

/// Whether the user wants bare jumps.
pub fn is_disabled() -> bool {
    std::env::var_os(DISABLE).is_some_and(|value| value == "1")
}

fn path(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}
