//! Calls whose arguments are plain values.

use super::{Facts, hand_over};
use crate::actions::queue::existing;
use crate::driver::is_allocated;
use cuda_abi::{signature, types::*};

pub unsafe extern "C" fn set_8<const INDEX: usize>(
    to: CUdeviceptr,
    value: u8,
    count: usize,
    stream: CUstream,
) -> CUresult {
    let facts = Facts { stream, words: [0; 2], is_valid: || is_allocated(to, count) };
    // SAFETY: the contract of every hook.
    unsafe { hand_over::<signature::cuMemsetD8Async, INDEX>((to, value, count, stream), facts) }
}

pub unsafe extern "C" fn set_16<const INDEX: usize>(
    to: CUdeviceptr,
    value: u16,
    count: usize,
    stream: CUstream,
) -> CUresult {
    let is_valid = || to.is_multiple_of(2) && is_allocated(to, count.saturating_mul(2));
    let facts = Facts { stream, words: [0; 2], is_valid };
    // SAFETY: the contract of every hook.
    unsafe { hand_over::<signature::cuMemsetD16Async, INDEX>((to, value, count, stream), facts) }
}

pub unsafe extern "C" fn set_32<const INDEX: usize>(
    to: CUdeviceptr,
    value: u32,
    count: usize,
    stream: CUstream,
) -> CUresult {
    let is_valid = || to.is_multiple_of(4) && is_allocated(to, count.saturating_mul(4));
    let facts = Facts { stream, words: [0; 2], is_valid };
    // SAFETY: the contract of every hook.
    unsafe { hand_over::<signature::cuMemsetD32Async, INDEX>((to, value, count, stream), facts) }
}

pub unsafe extern "C" fn copy<const INDEX: usize>(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    let is_valid = || is_allocated(to, bytes) && is_allocated(from, bytes);
    let facts = Facts { stream, words: [0; 2], is_valid };
    // SAFETY: the contract of every hook.
    unsafe { hand_over::<signature::cuMemcpyDtoDAsync_v2, INDEX>((to, from, bytes, stream), facts) }
}

pub unsafe extern "C" fn record<const INDEX: usize>(event: CUevent, stream: CUstream) -> CUresult {
    let facts = Facts { stream, words: event_words(event, 0), is_valid: || true };
    // SAFETY: the contract of every hook.
    unsafe { hand_over::<signature::cuEventRecord, INDEX>((event, stream), facts) }
}

pub unsafe extern "C" fn record_with_flags<const INDEX: usize>(
    event: CUevent,
    stream: CUstream,
    flags: u32,
) -> CUresult {
    let facts = Facts { stream, words: event_words(event, flags), is_valid: || true };
    // SAFETY: the contract of every hook.
    unsafe { hand_over::<signature::cuEventRecordWithFlags, INDEX>((event, stream, flags), facts) }
}

pub unsafe extern "C" fn wait<const INDEX: usize>(stream: CUstream, event: CUevent, flags: u32) -> CUresult {
    let facts = Facts { stream, words: event_words(event, flags), is_valid: || true };
    // SAFETY: the contract of every hook.
    unsafe { hand_over::<signature::cuStreamWaitEvent, INDEX>((stream, event, flags), facts) }
}

/// Returns the words that identify an event, and its state.
fn event_words(event: CUevent, flags: u32) -> [u64; 2] {
    let epoch = existing().map_or(0, |queue| queue.event_epoch());
    [event as u64, u64::from(epoch) << 32 | u64::from(flags)]
}
