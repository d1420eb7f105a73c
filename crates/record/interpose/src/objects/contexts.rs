//! Primary contexts: calls that destroy one name its device, not its handle.

use super::{Objects, lock};
use crate::tables::put;
use cuda_abi::types::*;
use std::collections::HashMap;

/// Handles of primary contexts.
pub type Primaries = HashMap<CUdevice, u64>;

impl Objects {
    /// `context` is the primary context of `device`.
    pub fn note_primary(&self, device: CUdevice, context: CUcontext) {
        if !context.is_null() {
            put(&mut lock(&self.primaries), device, context as u64);
        }
    }

    /// The primary context of `device`, which is about to be, or has been, destroyed; `None` if
    /// nobody saw it retained.
    pub fn take_primary(&self, device: CUdevice) -> Option<CUcontext> {
        lock(&self.primaries).remove(&device).map(|context| context as CUcontext)
    }
}
