//! Durations of copies and sets on the device: estimated from their bytes, since no copy is timed.

use apex_trace::layout::{Call, CallClass, MemoryKind};

use super::{Copies, CopyDirection, Device, Profile};
use crate::figure::Figure;

/// Bytes in a nanosecond: as usual, at most, at least. Host memory that is pinned goes over PCIe 4
/// or 5, pageable memory is staged by the driver (into pages that were never touched before: 1.5 on
/// an H200).
const PINNED: [f64; 3] = [20.0, 60.0, 10.0];
const PAGEABLE: [f64; 3] = [8.0, 25.0, 1.0];
/// Copies within a device and sets, as parts of the bandwidth of its memory. A copy reads and
/// writes: an H200 copies at 0.39 of its 4.9 TB/s. What lies in the L2 cache is faster.
const WITHIN_DEVICE: [f64; 3] = [0.39, 0.8, 0.1];
const SET: [f64; 3] = [0.6, 1.6, 0.1];
/// Copies between devices: which link they have is not known. They take between NVLink 5 and the
/// way through host memory.
const BETWEEN_DEVICES: [f64; 2] = [900.0, 5.0];
/// Usual rate between devices whose memory is at least so fast, as a part of its bandwidth: most of
/// them are joined by NVLink, which has 0.09 (H200) to 0.15 (A100) of it in each direction,
/// computed from NVIDIA's data sheets.
const NVLINK: (f64, f64) = (1400.0, 0.09);
/// Usual rate between other devices: PCIe 4.
const PCIE: f64 = 20.0;
/// The bandwidth of a device that does not report its own, bytes in a nanosecond.
const USUAL_BANDWIDTH: f64 = 2500.0;

/// The memories between which a copy or set moves bytes, as far as its speed depends on them.
#[derive(Clone, Copy)]
enum Transfer {
    Pinned,
    Pageable,
    WithinDevice,
    BetweenDevices,
    Set,
}

impl Transfer {
    fn copy(direction: CopyDirection, source: MemoryKind, destination: MemoryKind) -> Self {
        match direction {
            CopyDirection::DeviceToDevice => Self::WithinDevice,
            CopyDirection::PeerToPeer => Self::BetweenDevices,
            _ if [source, destination].contains(&MemoryKind::Pageable) => Self::Pageable,
            _ => Self::Pinned,
        }
    }

    /// Returns the time for `bytes` bytes, in nanoseconds: usual, minimum, maximum. `bandwidth` is
    /// that of the device's memory, in bytes per nanosecond; 0 if it is unknown.
    fn ns(self, bytes: u64, bandwidth: f64) -> [f64; 3] {
        let bandwidth = if bandwidth > 0.0 { bandwidth } else { USUAL_BANDWIDTH };
        let of_memory = |part: f64| part * bandwidth;
        let rates = match self {
            Self::Pinned => PINNED,
            Self::Pageable => PAGEABLE,
            Self::WithinDevice => WITHIN_DEVICE.map(of_memory),
            Self::Set => SET.map(of_memory),
            Self::BetweenDevices => {
                let (fast, part) = NVLINK;
                let usual = if bandwidth >= fast { of_memory(part) } else { PCIE };
                let [most, least] = BETWEEN_DEVICES;
                [usual.min(most), most, least]
            }
        };
        rates.map(|rate| bytes as f64 / rate)
    }
}

/// Whether host memory that a copy reads or writes is pageable.
pub(super) fn is_pageable(call: &Call) -> bool {
    [call.source_memory(), call.memory()].contains(&MemoryKind::Pageable)
}

/// Whether the host waits for a copy: those within and between devices return at once, whatever the
/// name of the call says; those into pageable memory return when they are done.
pub(super) fn copy_waits(source: MemoryKind, destination: MemoryKind, asynchronous: bool) -> bool {
    match CopyDirection::between(source, destination) {
        CopyDirection::DeviceToDevice => false,
        CopyDirection::DeviceToHost => !asynchronous || destination == MemoryKind::Pageable,
        _ => !asynchronous,
    }
}

/// The time of a copy or set, in nanoseconds: usual, least, most. `bandwidth` is that of the
/// device's memory, in bytes in a nanosecond; 0 if it is unknown.
pub(super) fn transfer_ns(call: &Call, bandwidth: f64) -> [u64; 3] {
    let transfer = match call.class() {
        Some(CallClass::Set) => Transfer::Set,
        _ => Transfer::copy(CopyDirection::of(call), call.source_memory(), call.memory()),
    };
    transfer.ns(call.bytes, bandwidth).map(|ns| ns as u64)
}

impl Copies {
    /// Whether the host waits for each of them: their time then belongs to the call, not to
    /// [`crate::Accounts::copies`].
    pub fn wait(&self) -> bool {
        copy_waits(self.source, self.destination, self.asynchronous)
    }
}

impl Profile {
    /// Returns the time of these copies on the device, one after the other, in nanoseconds.
    pub fn time_of_copies(&self, copies: &Copies) -> Figure {
        self.time_of(Transfer::copy(copies.direction, copies.source, copies.destination), copies.bytes)
    }

    /// Returns the time on the device of all calls that set memory, one after the other, in
    /// nanoseconds.
    pub fn time_of_sets(&self) -> Figure {
        let sets = self.calls.iter().filter(|call| call.class == Some(CallClass::Set));
        self.time_of(Transfer::Set, sets.map(|call| call.bytes).fold(0, u64::saturating_add))
    }

    /// Copies are not recorded by device: the devices of a job are taken to be alike.
    fn time_of(&self, transfer: Transfer, bytes: u64) -> Figure {
        let bandwidth = self.devices.iter().map(Device::memory_bytes_per_ns).fold(0.0, f64::max);
        let [usual, least, most] = transfer.ns(bytes, bandwidth);
        Figure::predicted(usual, (least, most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apex_trace::layout::flags;

    /// Nanoseconds that 10 MB within a device usually take.
    fn usual(class: CallClass, bandwidth: f64) -> u64 {
        let memory = MemoryKind::Device as u8;
        let call =
            Call { class: class as u8, memory, source_memory: memory, bytes: 10_000_000, ..Call::default() };
        transfer_ns(&call, bandwidth)[0]
    }

    #[test]
    fn between_devices_the_link_decides() {
        let memory = MemoryKind::Device as u8;
        let head = apex_trace::layout::RecordHead { flags: flags::PEER, ..Default::default() };
        let class = CallClass::Copy as u8;
        let call = Call { head, class, memory, source_memory: memory, bytes: 512 << 20, ..Call::default() };
        // An H200, whose 18 links of NVLink 4 have 450 GB/s; and one that PCIe joins to others.
        let [usual, least, most] = transfer_ns(&call, 4916.0);
        assert!((1_150_000..1_500_000).contains(&usual), "{usual}");
        assert_eq!([least, most], [596_523, 107_374_182]);
        assert_eq!(transfer_ns(&call, 1000.0)[0], 26_843_545);
        // Nobody waits for it, as for a copy within a device.
        assert!(!copy_waits(MemoryKind::Device, MemoryKind::Device, false));
    }

    #[test]
    fn the_bandwidth_of_the_device_decides_within_it() {
        // An H200: 3201 MHz, 6144 bits. The copy reads and writes.
        let bandwidth = 2.0 * 3.201 * 6144.0 / 8.0;
        assert_eq!(usual(CallClass::Copy, bandwidth), 5_215);
        assert_eq!(usual(CallClass::Set, bandwidth), 3_389);
        assert_eq!(usual(CallClass::Copy, bandwidth / 2.0), 10_430);
        assert_eq!(usual(CallClass::Copy, 0.0), usual(CallClass::Copy, USUAL_BANDWIDTH));
    }
}
