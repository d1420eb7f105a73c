//! The memory of an address: its kind, and its device.
//!
//! The driver knows it, but a query about pageable memory takes half a microsecond. Each thread
//! therefore remembers the addresses of recent queries until host memory is allocated, registered
//! or memory is freed.

use super::{Objects, epochs};
use crate::driver;
use crate::tables::spread;
use apex_trace::layout::MemoryKind;
use cuda_abi::types::*;
use std::sync::atomic::Ordering::Acquire;

/// Addresses that a thread asked about lately: address, epoch, what is there.
#[derive(Default)]
pub struct KnownAddresses([(u64, u32, Option<Place>); 16]);

/// What the driver says of an address.
#[derive(Clone, Copy)]
struct Place {
    kind: MemoryKind,
    device: CUdevice,
}

impl KnownAddresses {
    /// The kind of memory at `address`; unknown while a stream of the process captures, for then
    /// nothing is asked that can wait.
    pub fn kind_at(&mut self, objects: &Objects, address: u64) -> MemoryKind {
        self.place(objects, address).map_or(MemoryKind::Unknown, |place| place.kind)
    }

    /// Whether the device memory at two addresses is of two devices; no if that would have to be
    /// asked while a stream of the process captures.
    pub fn are_of_two_devices(&mut self, objects: &Objects, addresses: [u64; 2]) -> bool {
        let device = |address| {
            let place = self.place(objects, address)?;
            (place.kind == MemoryKind::Device && place.device >= 0).then_some(place.device)
        };
        matches!(addresses.map(device), [Some(one), Some(other)] if one != other)
    }

    fn place(&mut self, objects: &Objects, address: u64) -> Option<Place> {
        let epoch = epochs().memory.load(Acquire);
        let known = &mut self.0[(spread(address) % 16) as usize];
        if let (at, made, Some(place)) = *known
            && (at, made) == (address, epoch)
        {
            return Some(place);
        }
        if objects.captures.any() {
            return None;
        }
        let place = place_of(address);
        *known = (address, epoch, Some(place));
        Some(place)
    }
}

/// Asks the driver which kind of memory is at an address.
pub fn kind_of(address: u64) -> MemoryKind {
    place_of(address).kind
}

fn place_of(address: u64) -> Place {
    let found = driver::pointer_attributes(address);
    let kind = match (found.kind, found.managed) {
        (_, true) => MemoryKind::Managed,
        (CU_MEMORYTYPE_DEVICE, _) => MemoryKind::Device,
        (CU_MEMORYTYPE_HOST, _) => MemoryKind::Pinned,
        _ => MemoryKind::Pageable,
    };
    Place { kind, device: found.device }
}
