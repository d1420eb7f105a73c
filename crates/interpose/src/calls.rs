//! What happens around every recorded call that is not a launch.

use crate::launch::is_per_thread;
use crate::recorder::{Recorder, api, caught, is_recording, normalised};
use crate::tables::spread;
use crate::thread::{self, Thread};
use apex_trace::layout::{Call, CallClass, MemoryKind, Slots, flags};
use apex_trace::now;
use cuda_abi::types::*;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Release};

/// What is said of a call beside its name, times and result.
#[derive(Clone, Copy, Default)]
pub struct Notes {
    /// What the driver returned.
    pub result: CUresult,
    /// What sort of call it is.
    pub class: Option<CallClass>,
    /// [`flags`] of the record.
    pub flags: u16,
    /// The stream, as the program gave it.
    pub stream: Option<CUstream>,
    /// Of what is allocated, freed or set; of the destination of a copy.
    pub memory: Memory,
    /// Of the source of a copy.
    pub source_memory: Memory,
    /// Bytes allocated, copied or set.
    pub bytes: u64,
    /// Address allocated, freed, set or copied to.
    pub address: u64,
    /// Address copied from.
    pub source: u64,
    /// The handle involved.
    pub object: u64,
}

/// What a call says of the memory it works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Its kind.
    Is(MemoryKind),
    /// That it is the host's: pageable or pinned, the driver knows.
    Host,
    /// Nothing: the driver knows.
    Any,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::Is(MemoryKind::Unknown)
    }
}

impl Notes {
    /// Whether the call succeeded.
    pub fn succeeded(&self) -> bool {
        self.result == CUDA_SUCCESS
    }

    /// What the call wrote to an out-parameter; zero where it failed or the program did not want to know.
    ///
    /// # Safety
    /// `pointer` is an out-parameter of the call: null, or valid for reading if the call succeeded.
    pub unsafe fn out<T: Copy + Default>(&self, pointer: *const T) -> T {
        if !self.succeeded() || pointer.is_null() {
            return T::default();
        }
        // SAFETY: by contract.
        unsafe { pointer.read_unaligned() }
    }

    /// As [`Notes::out`], for a handle or an address.
    ///
    /// # Safety
    /// As for [`Notes::out`].
    pub unsafe fn out_handle<T>(&self, pointer: *const *mut T) -> u64 {
        // SAFETY: by contract; a pointer is as large as a u64 here.
        unsafe { self.out(pointer.cast::<u64>()) }
    }

    /// Memory was allocated.
    pub fn allocate(&mut self, kind: MemoryKind, address: u64, bytes: usize) {
        self.class = Some(CallClass::Allocate);
        self.memory = Memory::Is(kind);
        self.address = address;
        self.bytes = bytes as u64;
    }

    /// Memory was freed.
    pub fn free(&mut self, kind: MemoryKind, address: u64) {
        self.class = Some(CallClass::Free);
        self.memory = Memory::Is(kind);
        self.address = address;
    }

    /// Memory was copied, on the default stream unless said otherwise.
    pub fn copy(&mut self, to: (Memory, u64), from: (Memory, u64), bytes: usize) {
        self.class = Some(CallClass::Copy);
        (self.memory, self.address) = to;
        (self.source_memory, self.source) = from;
        self.bytes = bytes as u64;
        self.stream = Some(null_mut());
    }

    /// Memory was set, on the default stream unless said otherwise.
    pub fn set(&mut self, address: u64, bytes: usize) {
        self.class = Some(CallClass::Set);
        self.memory = Memory::Any;
        self.address = address;
        self.bytes = bytes as u64;
        self.stream = Some(null_mut());
    }

    /// Something was done with an object.
    pub fn object(&mut self, class: CallClass, object: u64) {
        self.class = Some(class);
        self.object = object;
    }

    /// A call on a stream that returns before the work is done.
    pub fn asynchronous(&mut self, stream: CUstream) {
        self.flags |= flags::ASYNC;
        self.stream = Some(stream);
    }
}

/// Forwards a call to the entry point at `INDEX` and records it as `describe` says.
#[inline]
pub fn observe<const INDEX: usize>(
    forward: impl FnOnce() -> CUresult,
    describe: impl FnOnce(&mut Notes),
) -> CUresult {
    if !is_recording() {
        return forward();
    }
    let start = now();
    let result = forward();
    let end = now();
    let mut notes = Notes { result, ..Notes::default() };
    describe(&mut notes);
    record(INDEX, const { is_per_thread(INDEX) }, (start, end), &notes);
    result
}

#[inline(never)]
fn record(index: usize, per_thread: bool, span: (u64, u64), notes: &Notes) {
    thread::with(|thread| caught(|| thread.record_call(index, per_thread, span, notes)));
}

impl Thread {
    fn record_call(&mut self, index: usize, per_thread: bool, (start, end): (u64, u64), notes: &Notes) {
        let Some(class) = notes.class else { return };
        let (mut stream, mut more) = (0, 0);
        if let Some(handle) = notes.stream.map(|stream| normalised(stream, per_thread)) {
            self.context();
            if self.is_captured(handle) {
                more = flags::CAPTURED;
            }
            // A handle that the driver refused may be garbage: it is not to be asked about.
            if notes.succeeded() {
                stream = self.stream(handle);
            }
        }
        let memory = self.kind(notes.memory, notes.address) as u8;
        let source_memory = self.kind(notes.source_memory, notes.source) as u8;
        self.push(&Call {
            head: Call::head(notes.flags | more, start, end),
            api: api(index),
            stream,
            result: notes.result,
            class: class as u8,
            memory,
            source_memory,
            reserved: 0,
            bytes: notes.bytes,
            address: notes.address,
            source: notes.source,
            object: notes.object,
        });
    }

    fn kind(&mut self, memory: Memory, address: u64) -> MemoryKind {
        match memory {
            Memory::Is(kind) => kind,
            Memory::Host | Memory::Any if address == 0 => MemoryKind::Unknown,
            Memory::Host | Memory::Any => self.kind_at(address),
        }
    }

    /// What is known of an address, else what the driver says: asking about pageable memory takes it half a microsecond.
    fn kind_at(&mut self, address: u64) -> MemoryKind {
        let recorder = self.recorder;
        let epoch = recorder.epochs.memory.load(Acquire);
        if let Some(kind) = self.addresses.get(address, epoch) {
            return kind;
        }
        // The driver is asked nothing during a capture that can wait.
        if recorder.captures.any() {
            return MemoryKind::Unknown;
        }
        let kind = kind_of(address);
        self.addresses.put(address, epoch, kind);
        kind
    }
}

/// Addresses that a thread asked about lately.
#[derive(Default)]
pub struct KnownAddresses([(u64, u32, Option<MemoryKind>); 16]);

impl KnownAddresses {
    fn place(address: u64) -> usize {
        (spread(address) % 16) as usize
    }

    fn get(&self, address: u64, epoch: u32) -> Option<MemoryKind> {
        let (known, made, kind) = self.0[Self::place(address)];
        kind.filter(|_| (known, made) == (address, epoch))
    }

    fn put(&mut self, address: u64, epoch: u32, kind: MemoryKind) {
        self.0[Self::place(address)] = (address, epoch, Some(kind));
    }
}

/// Memory was or is about to be allocated, registered or freed: addresses may come to mean something else.
pub fn addresses_change() {
    if let Some(recorder) = Recorder::existing() {
        recorder.epochs.memory.fetch_add(1, Release);
    }
}

/// What the driver says of an address.
fn kind_of(address: u64) -> MemoryKind {
    match crate::driver::pointer_attributes(address) {
        (_, true) => MemoryKind::Managed,
        (CU_MEMORYTYPE_DEVICE, _) => MemoryKind::Device,
        (CU_MEMORYTYPE_HOST, _) => MemoryKind::Pinned,
        _ => MemoryKind::Pageable,
    }
}
