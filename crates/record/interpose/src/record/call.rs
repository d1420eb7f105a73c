//! Calls other than launches: their description, and the record made from it.

use super::stacks::is_walked;
use super::thread::Thread;
use super::{Done, api};
use crate::objects::streams::normalised;
use apex_trace::layout::{Call, CallClass, MemoryKind, Slots, flags};
use cuda_abi::types::*;
use std::ptr::null_mut;

/// The description of a call besides its name, times and result.
#[derive(Clone, Copy, Default)]
pub struct Notes {
    /// The driver's result.
    pub result: CUresult,
    /// The class of the call.
    pub class: Option<CallClass>,
    /// [`flags`] of the record.
    pub flags: u16,
    /// The stream, as the program gave it.
    pub stream: Option<CUstream>,
    /// The memory that is allocated, freed or set; the destination of a copy.
    pub memory: Memory,
    /// The source of a copy.
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

/// The memory that a call works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Its kind.
    Is(MemoryKind),
    /// Memory of the host: pageable or pinned, the driver knows.
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

    /// Reads an out-parameter of the call; zero if the call failed or the program passed null.
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

impl Thread {
    /// Records a call of this class.
    #[inline]
    pub fn record_call(
        &mut self,
        index: usize,
        per_thread: bool,
        done: Done,
        class: CallClass,
        notes: &Notes,
    ) {
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
        let memory = self.kind(notes.memory, notes.address);
        let source_memory = self.kind(notes.source_memory, notes.source);
        if self.objects.devices.are_several()
            && (class, memory, source_memory) == (CallClass::Copy, MemoryKind::Device, MemoryKind::Device)
            && self.is_peer(notes)
        {
            more |= flags::PEER;
        }
        let call = Call {
            head: Call::head(notes.flags | more, done.start, done.end),
            api: api(index),
            stream,
            result: notes.result,
            class: class as u8,
            memory: memory as u8,
            source_memory: source_memory as u8,
            reserved: 0,
            bytes: notes.bytes,
            address: notes.address,
            source: notes.source,
            object: notes.object,
        };
        self.push(&call);
        if is_walked(class) {
            self.note_call(&call, done.end);
        }
    }

    #[inline(always)]
    fn kind(&mut self, memory: Memory, address: u64) -> MemoryKind {
        match memory {
            Memory::Is(kind) => kind,
            Memory::Host | Memory::Any => self.kind_at(address),
        }
    }

    /// Whether a copy within device memory goes from one device to another.
    #[inline(never)]
    fn is_peer(&mut self, notes: &Notes) -> bool {
        // What the driver refused may be no address.
        notes.succeeded() && self.addresses.are_of_two_devices(self.objects, [notes.address, notes.source])
    }

    #[inline(never)]
    fn kind_at(&mut self, address: u64) -> MemoryKind {
        if address == 0 { MemoryKind::Unknown } else { self.addresses.kind_at(self.objects, address) }
    }
}
