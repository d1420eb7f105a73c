//! Scheduling by data: in the graphs of the launch queue's batches, launches run concurrently if
//! they share no data (`apex run --fast=schedule`).
//!
//! A batch is a sequence of launches of one stream with nothing between them, and goes out as one
//! graph ([`super::queue::batch`]). Without scheduling the graph is a chain. With it, a launch
//! waits only for earlier ones of the batch with which it shares data that at least one of the two
//! writes. So nothing changes outside of the graph: the stream, its events, copies, captures,
//! callbacks, queries and other streams see the batch begin after all that came before it in the
//! stream, and end before all that comes after it. Helper streams with events would let launches
//! pass calls that are no launches, and events cost the host more time than small kernels save.
//!
//! Which memory a kernel accesses is a question about PTX, which `apex run` answers when the
//! program loads it ([`conventions::access`](apex_conventions::access)). This action knows the
//! answers and the program's allocations, and says which launches of a batch depend on each other
//! ([`edges`]).
//!
//! # Contract
//! 1. *The code is the one that was analysed.* A kernel's answer counts only where the program got
//!    its function from a module or library whose PTX the driver compiles
//!    ([`crate::objects::images`]), and where the driver lays its parameters out as the PTX does.
//! 2. *Unknown means order.* A launch keeps its order with all launches of the batch, unless all
//!    addresses that it may access lie in memory that the program got from `cuMemAlloc`,
//!    `cuMemAllocPitch` or `cuMemAllocAsync` and has not freed (nothing is freed within a batch).
//!    Managed, mapped and registered memory, memory of the program's own pools, of graphs, of other
//!    processes and devices, virtual memory, and variables of modules that kernels write are not.
//! 3. *Nobody else can see the order.* Kernels that synchronise with others (atomic operations,
//!    fences, `volatile`) or read a clock keep their order too, and scheduling ends for good when
//!    the program lets others use its memory, or maps memory so that two addresses may mean the
//!    same ([`SHARING`]).
//! 4. *Use.* Of each sequence the first batches are launched as a chain and as a graph with
//!    branches in turn, between two events. Branches stay if they save the GPU more time than they
//!    take the host ([`trial`]); a batch that came before has the edges that it had ([`recent`]).

pub mod edges;
pub mod recent;
pub mod trial;

use super::ask::connect;
use crate::objects::{Objects, epochs};
use crate::per_process::{OfProcess, PerProcess};
use crate::record::{Recorder, images};
use crate::tables::put;
use crate::{driver, limits};
use apex_conventions::access::{HEAD, MOST_BYTES, PATIENCE, SOCKET};
use apex_trace::layout::ScheduleState;
use apex_trace::{ForkGuard, ProcessFile};
use cuda_abi::types::*;
use launch_condition::{Allocations, KernelAccess, access_from_bytes};
use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Calls by which others may see memory while a batch runs, or after which two addresses may mean
/// the same memory.
pub const SHARING: [&str; 25] = [
    "cuCtxEnablePeerAccess",
    "cuDeviceSetMemPool",
    "cuExternalMemoryGetMappedBuffer",
    "cuFlushGPUDirectRDMAWrites",
    "cuGraphicsResourceGetMappedPointer",
    "cuIpcGetMemHandle",
    "cuIpcOpenMemHandle",
    "cuMemCreate",
    "cuMemExportToShareableHandle",
    "cuMemGetHandleForAddressRange",
    "cuMemImportFromShareableHandle",
    "cuMemMap",
    "cuMemPoolExportPointer",
    "cuMemPoolImportFromShareableHandle",
    "cuMemPoolImportPointer",
    "cuMemPoolSetAccess",
    "cuMemSetMemPool",
    "cuMulticastBindAddr",
    "cuMulticastBindMem",
    "cuPointerSetAttribute",
    "cuStreamBatchMemOp",
    "cuStreamWaitValue32",
    "cuStreamWaitValue64",
    "cuStreamWriteValue32",
    "cuStreamWriteValue64",
];

static SCHEDULE: PerProcess<Schedule> = PerProcess::new();

/// See the [module](self).
pub struct Schedule {
    /// The kernels of each PTX that was loaded, by its hash. Never freed.
    kernels: Mutex<HashMap<u128, &'static [KernelAccess]>>,
    memory: Mutex<Memory>,
    is_closed: AtomicBool,
    file: &'static ProcessFile,
    objects: &'static Objects,
    guard: ForkGuard,
}

/// The program's allocations.
#[derive(Default)]
pub struct Memory {
    /// Bytes by first address.
    allocations: BTreeMap<u64, u64>,
    /// The epoch of contexts: one that ends takes its memory along.
    epoch: u32,
    /// How often the allocations have changed.
    changes: u64,
}

impl OfProcess for Schedule {
    fn is_ours(&self) -> bool {
        self.guard.is_same_process()
    }
}

/// Faults that tests plant; see [`neglect`].
static NEGLECTED: OnceLock<fn(&str) -> bool> = OnceLock::new();

/// Plants the faults that `which` names, to see whether tests notice them. Must be called before
/// the first driver call. The tests that run random programs list the names.
pub fn neglect(which: fn(&str) -> bool) {
    NEGLECTED.get_or_init(|| which);
}

fn heeds(what: &str) -> bool {
    !NEGLECTED.get().is_some_and(|neglects| neglects(what))
}

/// Whether the user wants scheduling. It excludes the pool, which frees and allocates memory
/// without calls of the driver.
pub fn is_wanted() -> bool {
    super::is_wanted("schedule") && !super::is_wanted("memory")
}

/// Makes the tables of this process. Returns false, and notes it in the session, if that fails.
pub fn start(recorder: &'static Recorder) -> bool {
    let file = &recorder.file;
    let made = SCHEDULE.get_or_make(|| Schedule::new(recorder), |_| {});
    images::tell_ptx(|code, ptx| existing().into_iter().for_each(|schedule| schedule.learn(code, ptx)));
    file.set_schedule_state(if made.is_some() { ScheduleState::Unused } else { ScheduleState::Failed });
    made.is_some()
}

/// The one of this process, if it has one.
#[inline]
pub fn existing() -> Option<&'static Schedule> {
    SCHEDULE.get()
}

/// Ends scheduling, because the program lets others use its memory.
pub fn close() {
    if let Some(schedule) = existing()
        && !schedule.is_closed.swap(true, Relaxed)
    {
        schedule.file.set_schedule_state(ScheduleState::Closed);
    }
}

impl Schedule {
    fn new(recorder: &'static Recorder) -> Option<Box<Schedule>> {
        Some(Box::new(Schedule {
            kernels: Mutex::default(),
            memory: Mutex::default(),
            is_closed: AtomicBool::new(false),
            file: &recorder.file,
            objects: recorder.objects,
            guard: ForkGuard::new().ok()?,
        }))
    }

    /// Whether launches may run beside others.
    pub fn is_open(&self) -> bool {
        !self.is_closed.load(Acquire)
    }

    /// Says what became of it.
    pub fn set_state(&self, state: ScheduleState) {
        if self.is_open() {
            self.file.set_schedule_state(state);
        }
    }

    /// The session's file.
    pub fn file(&self) -> &'static ProcessFile {
        self.file
    }

    /// The program has loaded this PTX: asks which memory its kernels access.
    pub fn learn(&self, code: u128, ptx: &[u8]) {
        if lock(&self.kernels).contains_key(&code) {
            return;
        }
        // No lock is held while somebody else works.
        let kernels = ask(ptx).unwrap_or_default();
        let mut known = lock(&self.kernels);
        if known.len() < limits::IMAGES {
            put(&mut known, code, Vec::leak(kernels));
        }
    }

    /// The kernel behind a handle with which a launch succeeded, if its code is known.
    pub fn kernel(&self, handle: CUfunction) -> Option<&'static KernelAccess> {
        let code = self.objects.ptx_behind(handle)?;
        let known = lock(&self.kernels);
        let kernels = if heeds("schedule-code") { known.get(&code) } else { known.values().next() };
        let kernels = *kernels?;
        drop(known);
        let name = self.objects.describe_function(handle).name;
        let kernel = kernels.iter().find(|kernel| kernel.name == name || !heeds("schedule-kernel"))?;
        let offsets = driver::parameters(handle, limits::SCHEDULED_PARAMETERS)?;
        let is_laid_out = kernel.parameters.iter().copied().eq(offsets.iter().map(|one| one.offset));
        (is_laid_out && kernel.memory.is_some()).then_some(kernel)
    }

    /// The program has got memory by a call that scheduling follows.
    pub fn allocated(&self, address: u64, bytes: u64) {
        let mut memory = self.memory();
        if address != 0 && memory.allocations.len() < limits::ALLOCATIONS {
            memory.allocations.insert(address, bytes);
            memory.changes += 1;
        }
    }

    /// The program is about to free memory.
    pub fn freed(&self, address: u64) {
        let mut memory = self.memory();
        memory.allocations.remove(&address);
        memory.changes += 1;
    }

    /// The living allocations.
    pub fn memory(&self) -> MutexGuard<'_, Memory> {
        let mut memory = lock(&self.memory);
        let epoch = epochs().contexts.load(Acquire);
        if memory.epoch != epoch {
            *memory = Memory { allocations: BTreeMap::new(), epoch, changes: memory.changes + 1 };
        }
        memory
    }
}

impl Memory {
    /// A number that differs after each change of the allocations.
    pub fn changes(&self) -> u64 {
        self.changes
    }
}

impl Allocations for Memory {
    fn around(&self, address: u64) -> Option<(u64, u64)> {
        let (&start, &bytes) = self.allocations.range(..=address).next_back()?;
        let end = start.checked_add(bytes)?;
        (address < end).then_some((start, end))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while it was held leaves the tables valid: every step of their changes is.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What `apex run` says of the kernels of this PTX.
fn ask(ptx: &[u8]) -> Option<Vec<KernelAccess>> {
    if ptx.len() > MOST_BYTES {
        return None;
    }
    let mut stream = connect(SOCKET, PATIENCE)?;
    stream.write_all(&HEAD).ok()?;
    stream.write_all(&(ptx.len() as u64).to_le_bytes()).ok()?;
    stream.write_all(ptx).ok()?;
    let mut length = [0; 8];
    stream.read_exact(&mut length).ok()?;
    let length = u64::from_le_bytes(length);
    let mut answer = Vec::new();
    stream.take(length.min(MOST_BYTES as u64)).read_to_end(&mut answer).ok()?;
    access_from_bytes(&answer).ok()
}
