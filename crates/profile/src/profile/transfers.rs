//! How long copies and sets take on the device: estimated from their bytes, since no copy is timed.

use apex_trace::layout::{Call, CallClass, MemoryKind};

use super::CopyDirection;

/// Bytes in a nanosecond: as usual, at most, at least. Host memory that is pinned goes over PCIe 4
/// or 5, pageable memory is staged by the driver (into pages that were never touched before: 1.5 on
/// an H200); device memory is read and written (an H200 copies
/// 1.9 bytes in a picosecond).
const PINNED: [f64; 3] = [20.0, 60.0, 10.0];
const PAGEABLE: [f64; 3] = [8.0, 25.0, 1.0];
const WITHIN_DEVICE: [f64; 3] = [1000.0, 2000.0, 200.0];
const SET: [f64; 3] = [1500.0, 4000.0, 300.0];

/// Whether host memory that a copy reads or writes is pageable.
pub(super) fn is_pageable(call: &Call) -> bool {
    [call.source_memory(), call.memory()].contains(&MemoryKind::Pageable)
}

/// What a copy or set takes: as usual, at least, at most, in nanoseconds.
pub(super) fn transfer_ns(call: &Call) -> [u64; 3] {
    let rates = match CopyDirection::between(call.source_memory(), call.memory()) {
        _ if call.class() == Some(CallClass::Set) => SET,
        CopyDirection::DeviceToDevice => WITHIN_DEVICE,
        _ if is_pageable(call) => PAGEABLE,
        _ => PINNED,
    };
    rates.map(|rate| (call.bytes as f64 / rate) as u64)
}
