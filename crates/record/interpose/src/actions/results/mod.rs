//! Hashes of the program's results, for `apex tune --verify`: of each copy to the host, and of each
//! allocation when it is freed or the process ends.
//!
//! The program computes what it computes without; it takes longer, because a copy is waited for
//! before its bytes are read. While a stream of the process is being captured nothing may be waited
//! for, so that what would be read then is counted instead, as are copies whose bytes do not lie
//! together. Hashes go to a file of the session ([`apex_trace::results`]).

use crate::driver;
use crate::objects::Objects;
use crate::per_process::{OfProcess, PerProcess};
use crate::switch::guarded;
use crate::tables::push;
use apex_conventions::variables::SESSION;
use apex_trace::ForkGuard;
use apex_trace::results::{Kind, Place, WANTED, Writer};
use cuda_abi::types::*;
use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of an allocation that are read at a time: whole pieces.
const PART: usize = 1 << 20;

static RESULTS: PerProcess<Results> = PerProcess::new();

/// The results of a process.
pub struct Results {
    writer: Mutex<Writer>,
    /// The allocations that live.
    living: Mutex<Vec<Allocation>>,
    threads: AtomicU64,
    objects: &'static Objects,
    guard: ForkGuard,
}

/// Memory that the program has allocated on the device.
#[derive(Clone, Copy)]
struct Allocation {
    address: CUdeviceptr,
    bytes: usize,
    /// The address of its context.
    context: usize,
    place: Place,
}

thread_local! {
    /// The number of this thread, plus 1; 0 before its first result.
    static THREAD: Cell<u64> = const { Cell::new(0) };
    /// How many copies and allocations it has had.
    static COUNTS: [Cell<u64>; 2] = const { [const { Cell::new(0) }; 2] };
}

impl OfProcess for Results {
    fn is_ours(&self) -> bool {
        self.guard.is_same_process()
    }
}

/// Whether the session asks for hashes.
pub fn is_wanted() -> bool {
    SESSION.path().is_some_and(|session| session.join(WANTED).exists())
}

/// Makes the file; `None` if that fails.
pub fn start(objects: &'static Objects) -> Option<&'static Results> {
    let make = || {
        Some(Box::new(Results {
            writer: Mutex::new(Writer::create(&SESSION.path()?).ok()?),
            living: Mutex::default(),
            threads: AtomicU64::new(0),
            objects,
            guard: ForkGuard::new().ok()?,
        }))
    };
    RESULTS.get_or_make(make, |_| {})
}

/// Something was copied to the host, which cannot be read.
pub fn unseen() {
    if let Some(results) = RESULTS.get() {
        guarded(|| results.skip());
    }
}

/// The program has copied `bytes` from the device to `to`, which holds them when the work on
/// `stream` is done, if there is one.
///
/// # Safety
/// The driver accepted such a copy just now.
pub unsafe fn copied(to: *const u8, bytes: usize, stream: Option<CUstream>) {
    let Some(results) = RESULTS.get() else { return };
    guarded(|| {
        let is_capturing = results.objects.captures.any();
        if is_capturing || stream.is_some_and(|stream| !driver::finish(stream)) || to.is_null() {
            return results.skip();
        }
        // SAFETY: the driver has written so many bytes there, and the program, which is inside of
        // this call, has not freed them.
        let bytes = unsafe { std::slice::from_raw_parts(to, bytes) };
        let place = results.place(Kind::Copy);
        results.write(place, bytes.len(), |writer| writer.hash(bytes));
    });
}

/// Whether a copy between these addresses leads from the device to the host.
pub fn leads_to_host(to: CUdeviceptr, from: CUdeviceptr) -> bool {
    let is_device = |address| {
        let found = driver::pointer_attributes(address);
        found.managed || found.kind == CU_MEMORYTYPE_DEVICE
    };
    RESULTS.get().is_some() && !is_device(to) && is_device(from)
}

/// The program has allocated memory on the device.
pub fn allocated(address: CUdeviceptr, bytes: usize) {
    let Some(results) = RESULTS.get() else { return };
    guarded(|| {
        let context = driver::current_context() as usize;
        let allocation = Allocation { address, bytes, context, place: results.place(Kind::Allocation) };
        push(&mut results.living(), allocation);
    });
}

/// The program is about to free memory.
pub fn is_freed(address: CUdeviceptr) {
    let Some(results) = RESULTS.get() else { return };
    guarded(|| {
        let mut living = results.living();
        let place = living.iter().position(|allocation| allocation.address == address);
        let allocation = place.map(|place| living.swap_remove(place));
        // No lock is held during a call into the driver.
        drop(living);
        allocation.into_iter().for_each(|allocation| results.end(allocation));
    });
}

/// The process ends: so do its allocations.
pub fn end() {
    if let Some(results) = RESULTS.get() {
        let living = std::mem::take(&mut *results.living());
        living.into_iter().for_each(|allocation| results.end(allocation));
    }
}

impl Results {
    fn living(&self) -> MutexGuard<'_, Vec<Allocation>> {
        self.living.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place of the next result of this kind.
    fn place(&self, kind: Kind) -> Place {
        if THREAD.get() == 0 {
            THREAD.set(self.threads.fetch_add(1, Relaxed) + 1);
        }
        let number = COUNTS.with(|counts| {
            let count = &counts[usize::from(kind == Kind::Allocation)];
            count.replace(count.get() + 1)
        });
        Place { kind, thread: THREAD.get() - 1, number }
    }

    fn skip(&self) {
        let place = Place { kind: Kind::Unseen, thread: 0, number: 0 };
        self.write(place, 0, |_| Ok(()));
    }

    /// Writes an entry. If that fails, its file ends there, and the comparison says so.
    fn write(&self, place: Place, bytes: usize, hashes: impl FnOnce(&mut Writer) -> std::io::Result<()>) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let written = match writer.begin(place, bytes as u64) {
            Ok(true) => hashes(&mut writer),
            begun => begun.map(drop),
        };
        if written.is_err() {
            writer.close();
        }
    }

    /// Hashes an allocation, if it can be read.
    fn end(&self, allocation: Allocation) {
        let Allocation { address, bytes, context, place } = allocation;
        let context = context as CUcontext;
        let mut part = Vec::new();
        let is_readable = !self.objects.captures.any() && part.try_reserve_exact(PART.min(bytes)).is_ok();
        part.resize(if is_readable { PART.min(bytes) } else { 0 }, 0);
        let first = part.len();
        if !is_readable || !driver::read_device_memory(context, address, &mut part[..first]) {
            return self.skip();
        }
        self.write(place, bytes, |writer| {
            writer.hash(&part)?;
            for at in (first..bytes).step_by(PART) {
                let part = &mut part[..PART.min(bytes - at)];
                if !driver::read_device_memory(context, address + at as u64, part) {
                    return Err(std::io::ErrorKind::Other.into());
                }
                writer.hash(part)?;
            }
            Ok(())
        });
    }
}
