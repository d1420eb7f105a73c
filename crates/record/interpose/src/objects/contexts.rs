//! Contexts: which devices have one, and primary contexts, since calls that destroy one name its
//! device, not its handle.

use super::{Objects, lock};
use crate::tables::put;
use cuda_abi::types::*;
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Handles of primary contexts.
pub type Primaries = HashMap<CUdevice, u64>;

/// The devices on which the process has had a context.
#[derive(Default)]
pub struct UsedDevices(AtomicU64);

impl UsedDevices {
    /// The process has a context on `device`.
    pub fn note(&self, device: CUdevice) {
        self.0.fetch_or(1 << (device as u32 % u64::BITS), Relaxed);
    }

    /// Whether there are at least two.
    #[inline]
    pub fn are_several(&self) -> bool {
        let devices = self.0.load(Relaxed);
        devices & devices.wrapping_sub(1) != 0
    }
}

impl Objects {
    /// `context` is the primary context of `device`.
    pub fn note_primary(&self, device: CUdevice, context: CUcontext) {
        if !context.is_null() {
            self.devices.note(device);
            put(&mut lock(&self.primaries), device, context as u64);
        }
    }

    /// The primary context of `device`, which is about to be, or has been, destroyed; `None` if
    /// nobody saw it retained.
    pub fn take_primary(&self, device: CUdevice) -> Option<CUcontext> {
        lock(&self.primaries).remove(&device).map(|context| context as CUcontext)
    }
}
