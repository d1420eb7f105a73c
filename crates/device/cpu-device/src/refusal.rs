//! Features that this device does not have: each is named once on standard error, so that nobody
//! has to guess what an error code means.

use crate::error::{Result, fail};
use cuda_abi::types::*;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

/// Refuses a feature by its name: what it is, and what to do instead. Each is reported once.
pub fn refuse<T>(feature: &'static str) -> Result<T> {
    static REPORTED: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    if !reported.contains(&feature) {
        reported.push(feature);
        // A program may have closed its standard error; that must not become its problem.
        let _ = writeln!(std::io::stderr(), "apex: cpu device: not supported: {feature}");
    }
    drop(reported);
    fail(CUDA_ERROR_NOT_SUPPORTED)
}

/// [`refuse`] unless `supported` holds.
pub fn supported(supported: bool, feature: &'static str) -> Result<()> {
    if supported { Ok(()) } else { refuse(feature) }
}
