//! The environment variables by which `apex run` configures this library. They are read at the
//! first driver call.

use std::path::PathBuf;

use apex_trace::definition::Variable;
use apex_trace::environment::{MAX_VALUE_BYTES, NAMES};

/// The session directory, an absolute path. Without it nothing is recorded and every call is
/// forwarded.
pub const SESSION: &str = "APEX_SESSION";
/// The driver to forward to, an absolute path. Without it the driver is searched for
/// ([`crate::locate`]).
pub const DRIVER: &str = "APEX_DRIVER";
/// `1` makes the library bare jumps to the driver, whatever else is set.
pub const DISABLE: &str = "APEX_DISABLE";

/// How the program is made faster, separated by commas: `queue` moves launches to a thread of this
/// library ([`crate::queue`]), `batch` also combines queued launches into graphs
/// ([`crate::queue::batch`]), `memory` reuses freed memory ([`crate::pool`]).
pub const FAST: &str = "APEX_FAST";

/// `1` keeps the queue on where it gains nothing: what tests want.
pub const FAST_ALWAYS: &str = "APEX_FAST_ALWAYS";

/// Whether the queue stays on where it gains nothing.
pub fn is_always_fast() -> bool {
    std::env::var_os(FAST_ALWAYS).is_some_and(|value| value == "1")
}

/// Whether the program is to be made faster in this way: `queue`, `batch` or `memory`.
pub fn is_fast_by(way: &str) -> bool {
    std::env::var(FAST).is_ok_and(|value| value.split(',').any(|wanted| wanted == way))
}

/// Where NVTX finds the library that takes its ranges: an absolute path. It is NVTX that reads it.
pub const NVTX: &str = "NVTX_INJECTION64_PATH";

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

/// The variables that a session keeps, as they are set now.
pub fn recorded() -> impl Iterator<Item = Variable> {
    let value = |name: &&str| {
        let value = std::env::var_os(name)?.to_string_lossy().into_owned();
        Some(value.chars().scan(0, within(MAX_VALUE_BYTES)).collect())
    };
    let variables = NAMES.iter().filter_map(move |name| Some((*name, value(name)?)));
    variables.map(|(name, value)| Variable { id: 0, name: name.to_owned(), value })
}

/// Passes characters on until they have more than `most` bytes.
fn within(most: usize) -> impl Fn(&mut usize, char) -> Option<char> {
    move |bytes, character| {
        *bytes += character.len_utf8();
        (*bytes <= most).then_some(character)
    }
}

fn path(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}
