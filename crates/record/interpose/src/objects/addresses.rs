//! The kind of memory of an address.
//!
//! The driver knows it, but a query about pageable memory takes half a microsecond. Each thread
//! therefore remembers the addresses of recent queries until host memory is allocated, registered
//! or freed.

use super::{Objects, epochs};
use crate::driver;
use crate::tables::spread;
use apex_trace::layout::MemoryKind;
use cuda_abi::types::*;
use std::sync::atomic::Ordering::Acquire;

/// Addresses that a thread asked about lately: address, epoch, kind.
#[derive(Default)]
pub struct KnownAddresses([(u64, u32, Option<MemoryKind>); 16]);

impl KnownAddresses {
    /// The kind of memory at `address`; unknown while a stream of the process captures, for then
    /// nothing is asked that can wait.
    pub fn kind_at(&mut self, objects: &Objects, address: u64) -> MemoryKind {
        let epoch = epochs().memory.load(Acquire);
        let place = &mut self.0[(spread(address) % 16) as usize];
        if let (known, made, Some(kind)) = *place
            && (known, made) == (address, epoch)
        {
            return kind;
        }
        if objects.captures.any() {
            return MemoryKind::Unknown;
        }
        let kind = kind_of(address);
        *place = (address, epoch, Some(kind));
        kind
    }
}

/// Asks the driver about an address.
pub fn kind_of(address: u64) -> MemoryKind {
    match driver::pointer_attributes(address) {
        (_, true) => MemoryKind::Managed,
        (CU_MEMORYTYPE_DEVICE, _) => MemoryKind::Device,
        (CU_MEMORYTYPE_HOST, _) => MemoryKind::Pinned,
        _ => MemoryKind::Pageable,
    }
}
