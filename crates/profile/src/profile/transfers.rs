//! How long copies and sets take on the device: estimated from their bytes, since no copy is timed.

use apex_trace::layout::{Call, CallClass, MemoryKind};

use super::CopyDirection;

/// Bytes in a nanosecond: as usual, at most, at least. Host memory that is pinned goes over PCIe 4
/// or 5, pageable memory is staged by the driver (into pages that were never touched before: 1.5 on
/// an H200).
const PINNED: [f64; 3] = [20.0, 60.0, 10.0];
const PAGEABLE: [f64; 3] = [8.0, 25.0, 1.0];
/// Copies within a device and sets, as parts of the bandwidth of its memory. A copy reads and
/// writes: an H200 copies at 0.39 of its 4.9 TB/s. What lies in the L2 cache is faster.
const WITHIN_DEVICE: [f64; 3] = [0.39, 0.8, 0.1];
const SET: [f64; 3] = [0.6, 1.6, 0.1];
/// The bandwidth of a device that does not report its own, bytes in a nanosecond.
const USUAL_BANDWIDTH: f64 = 2500.0;

/// Whether host memory that a copy reads or writes is pageable.
pub(super) fn is_pageable(call: &Call) -> bool {
    [call.source_memory(), call.memory()].contains(&MemoryKind::Pageable)
}

/// What a copy or set takes, in nanoseconds: as usual, at least, at most. `bandwidth` is that of the
/// device's memory, in bytes in a nanosecond; 0 if it is unknown.
pub(super) fn transfer_ns(call: &Call, bandwidth: f64) -> [u64; 3] {
    let of_memory = |part: f64| part * if bandwidth > 0.0 { bandwidth } else { USUAL_BANDWIDTH };
    let rates = match CopyDirection::between(call.source_memory(), call.memory()) {
        _ if call.class() == Some(CallClass::Set) => SET.map(of_memory),
        CopyDirection::DeviceToDevice => WITHIN_DEVICE.map(of_memory),
        _ if is_pageable(call) => PAGEABLE,
        _ => PINNED,
    };
    rates.map(|rate| (call.bytes as f64 / rate) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nanoseconds that 10 MB within a device usually take.
    fn usual(class: CallClass, bandwidth: f64) -> u64 {
        let memory = MemoryKind::Device as u8;
        let call =
            Call { class: class as u8, memory, source_memory: memory, bytes: 10_000_000, ..Call::default() };
        transfer_ns(&call, bandwidth)[0]
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
