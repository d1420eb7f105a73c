//! Stream memory operations: a stream writes a word of memory, or waits for one to change.
//!
//! A word is checked when the operation is submitted and again when it is executed, since the
//! program may free its memory in between.

use crate::context::Context;
use crate::device;
use crate::error::{Error, Result, ensure};
use crate::fault::Access;
use crate::memory::Kind;
use crate::memory::host::{self, Map};
use crate::thread;
use cuda_abi::types::*;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// A word in memory that the device knows.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    address: u64,
    wide: bool,
    /// The driver function that named it.
    call: &'static str,
}

impl Word {
    /// The word of 4 bytes, or 8 if `wide`, at an address that is aligned to it.
    pub fn at(address: u64, wide: bool) -> Result<Word> {
        let bytes = if wide { 8 } else { 4 };
        ensure(address.is_multiple_of(bytes), CUDA_ERROR_INVALID_VALUE)?;
        let allocation = device::get()?.memory.find(address).ok_or(Error(CUDA_ERROR_INVALID_VALUE))?;
        ensure(allocation.holds(address, bytes), CUDA_ERROR_INVALID_VALUE)?;
        Ok(Word { address, wide, call: thread::call() })
    }

    /// Looks at the word while it cannot go away; a fault if it has gone.
    fn access<T>(self, write: bool, access: impl FnOnce() -> T) -> Result<T> {
        let memory = &device::get()?.memory;
        let _pin = memory.pin();
        let bytes = if self.wide { 8 } else { 4 };
        let found = memory.find(self.address).filter(|found| found.holds(self.address, bytes));
        let is_there = found.is_some_and(|found| match (found.kind, write) {
            (Kind::Registered, false) => host::is_readable(self.address),
            (Kind::Registered, true) => {
                let run = Map::read().around(self.address, found.start, found.end());
                run.is_some_and(|run| run.writable)
            }
            _ => true,
        });
        if is_there {
            return Ok(access());
        }
        let Word { address, call, .. } = self;
        Err(Access { call, address, bytes, write }.fault(&memory.describe(address)))
    }

    fn load(self) -> Result<u64> {
        // SAFETY: aligned, and inside of an allocation that `access` keeps mapped.
        self.access(false, || unsafe {
            if self.wide {
                (*(self.address as *const AtomicU64)).load(Ordering::Acquire)
            } else {
                (*(self.address as *const AtomicU32)).load(Ordering::Acquire).into()
            }
        })
    }

    fn store(self, value: u64) -> Result {
        // SAFETY: as in `load`.
        self.access(true, || unsafe {
            if self.wide {
                (*(self.address as *const AtomicU64)).store(value, Ordering::Release);
            } else {
                (*(self.address as *const AtomicU32)).store(value as u32, Ordering::Release);
            }
        })
    }
}

/// `cuStreamWriteValue32` and `64`.
#[derive(Clone, Copy, Debug)]
pub struct WriteValue {
    /// The word to write.
    pub word: Word,
    /// The value to write.
    pub value: u64,
}

impl WriteValue {
    /// Writes the value.
    pub fn execute(self) -> Result {
        self.word.store(self.value)?;
        device::get()?.memory.note_written(self.word.address, if self.word.wide { 8 } else { 4 });
        Ok(())
    }
}

/// `cuStreamWaitValue32` and `64`.
#[derive(Clone, Copy, Debug)]
pub struct WaitValue {
    word: Word,
    value: u64,
    condition: CUstreamWaitValue_flags,
}

impl WaitValue {
    /// Waits for `word` to stand in the relation to `value` that `flags` name.
    pub fn new(word: Word, value: u64, flags: CUstreamWaitValue_flags) -> Result<WaitValue> {
        let condition = flags & !CU_STREAM_WAIT_VALUE_FLUSH;
        ensure(condition <= CU_STREAM_WAIT_VALUE_NOR, CUDA_ERROR_INVALID_VALUE)?;
        Ok(WaitValue { word, value, condition })
    }

    /// Waits, until the condition holds or the context's work is cancelled.
    pub fn execute(self, context: &Context) -> Result {
        while !self.holds(self.word.load()?) && !context.cancel.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_micros(20));
        }
        Ok(())
    }

    fn holds(self, found: u64) -> bool {
        match self.condition {
            CU_STREAM_WAIT_VALUE_EQ => found == self.value,
            CU_STREAM_WAIT_VALUE_AND => found & self.value != 0,
            CU_STREAM_WAIT_VALUE_NOR => {
                let bits = found | self.value;
                if self.word.wide { !bits != 0 } else { !(bits as u32) != 0 }
            }
            // Cyclic: the sign of the difference, as the driver's reference defines it.
            _ if self.word.wide => found.wrapping_sub(self.value).cast_signed() >= 0,
            _ => (found as u32).wrapping_sub(self.value as u32).cast_signed() >= 0,
        }
    }
}
