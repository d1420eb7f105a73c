//! Contexts, which own work, memory and faults, and each thread's stack of contexts.
//!
//! Every thread has a stack of contexts, the top of which is current. The device's primary context
//! is counted by retains and releases; others are made and destroyed by the program. As in
//! CUDA, every call in a context after a fault returns that fault, because the state of its memory
//! is unknown.

pub mod storage;

use crate::context::storage::Storage;
use crate::device;
use crate::error::{Error, Result, ensure, fail};
use crate::handle::{Kind, Table};
use crate::memory::graph_memory;
use crate::stream::capture::Capture;
use crate::stream::operation::Operation;
use crate::stream::{Order, Stream};
use crate::thread;
use cuda_abi::types::*;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

static CONTEXTS: Table<Context> = Table::new(Kind::Context);

static PRIMARY: Mutex<Primary> = Mutex::new(Primary { context: None, retained: 0, flags: 0 });

/// A context.
pub struct Context {
    /// As the program knows it.
    pub handle: u64,
    /// The order of the context's work.
    pub order: Order,
    /// Its legacy default stream.
    pub legacy: Arc<Stream>,
    /// Raised to make its kernels stop.
    pub cancel: AtomicBool,
    flags: AtomicU32,
    fault: AtomicU32,
    settings: Mutex<Settings>,
    captures: Mutex<Vec<Weak<Capture>>>,
    /// The values that the runtime stores with the context, by its keys.
    pub storage: Storage,
}

/// A context's settings, which a program can change.
#[derive(Clone)]
pub struct Settings {
    /// By `CUlimit`.
    pub limits: HashMap<CUlimit, usize>,
    /// `CUfunc_cache`: kept, and without effect.
    pub cache: CUfunc_cache,
    /// `CUsharedconfig`: kept, and without effect.
    pub shared: CUsharedconfig,
}

impl Default for Settings {
    fn default() -> Settings {
        let limits = HashMap::from([
            (CU_LIMIT_STACK_SIZE, 1 << 10),
            (CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20),
            (CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20),
            (CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 2),
            (CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 2048),
            (CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 128),
            (CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0),
        ]);
        Settings {
            limits,
            cache: CU_FUNC_CACHE_PREFER_NONE,
            shared: CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE,
        }
    }
}

impl Context {
    fn new(handle: u64, flags: u32) -> Arc<Context> {
        let context = Arc::new_cyclic(|weak| Context {
            handle,
            order: Order::default(),
            legacy: Arc::new(Stream::legacy(weak)),
            cancel: AtomicBool::new(false),
            flags: AtomicU32::new(flags),
            fault: AtomicU32::new(CUDA_SUCCESS),
            settings: Mutex::default(),
            captures: Mutex::default(),
            storage: Storage::default(),
        });
        CONTEXTS.insert(handle, context.clone());
        context
    }

    /// Creates a context and makes it current.
    pub fn create(flags: u32) -> Result<Arc<Context>> {
        device::get()?;
        ensure(are_flags(flags), CUDA_ERROR_INVALID_VALUE)?;
        let context = Context::new(CONTEXTS.reserve(), flags);
        with_stack(|stack| stack.push(context.handle));
        Ok(context)
    }

    /// The context that a handle names.
    pub fn resolve(handle: CUcontext) -> Result<Arc<Context>> {
        device::get()?;
        CONTEXTS.get(handle as u64).ok_or(Error(CUDA_ERROR_INVALID_CONTEXT))
    }

    /// Ends a context that was [created](Context::create): waits for its work, frees its memory.
    pub fn destroy(handle: CUcontext) -> Result {
        let context = Context::resolve(handle)?;
        let is_primary = primary().context.as_ref().is_some_and(|primary| Arc::ptr_eq(primary, &context));
        ensure(!is_primary, CUDA_ERROR_INVALID_CONTEXT)?;
        with_stack(|stack| {
            if stack.last() == Some(&context.handle) {
                stack.pop();
            }
        });
        CONTEXTS.remove(context.handle);
        context.end(u64::MAX);
        Ok(())
    }

    /// Waits for the context's work and gives back what it holds: of the memory under its handle
    /// what has an id below `end_of_memory`.
    fn end(&self, end_of_memory: u64) {
        if self.fault() != CUDA_SUCCESS {
            self.cancel.store(true, Ordering::Relaxed);
        }
        self.order.wait();
        self.storage.clear(self.handle);
        if let Ok(device) = device::get() {
            device.memory.release_all(self.handle, end_of_memory);
            graph_memory::end_context(device);
        }
    }

    /// The flags it was created with.
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Changes the flags.
    pub fn set_flags(&self, flags: u32) -> Result {
        ensure(are_flags(flags), CUDA_ERROR_INVALID_VALUE)?;
        self.flags.store(flags, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the settings, locked.
    pub fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value of a limit; 0 for one that does not exist.
    pub fn limit(&self, limit: CUlimit) -> usize {
        self.settings().limits.get(&limit).copied().unwrap_or(0)
    }

    /// Fails with the fault that the context has seen, if it has.
    pub fn check(&self) -> Result {
        match self.fault() {
            CUDA_SUCCESS => Ok(()),
            code => fail(code),
        }
    }

    /// Makes every later call fail with `code`, unless it fails with another one already, and the
    /// context's kernels stop.
    pub fn stop(&self, code: CUresult) {
        let _ = self.fault.compare_exchange(CUDA_SUCCESS, code, Ordering::AcqRel, Ordering::Acquire);
        self.cancel.store(true, Ordering::Relaxed);
    }

    fn fault(&self) -> CUresult {
        self.fault.load(Ordering::Acquire)
    }

    /// Does one operation, now. After a fault, only callbacks are called, with the error; the
    /// first fault is the one that is reported.
    pub fn execute(&self, operation: Operation) {
        let operation = match (self.fault(), operation) {
            (CUDA_SUCCESS, operation) => operation,
            (fault, Operation::Callback(callback)) => {
                let _ = callback.execute(fault);
                return;
            }
            _ => return,
        };
        // The call that the thread may be in has not asked for this.
        let execute = || thread::in_call("", || operation.execute(self));
        let code = match catch_unwind(AssertUnwindSafe(execute)) {
            Ok(Ok(())) => return,
            Ok(Err(Error(code))) => code,
            Err(_) => CUDA_ERROR_UNKNOWN,
        };
        let _ = self.fault.compare_exchange(CUDA_SUCCESS, code, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Waits until all work of all streams is done.
    pub fn synchronize(&self) -> Result {
        self.check()?;
        if let Some(capture) = self.active_capture(|_| true) {
            capture.invalidate();
            return fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        self.order.wait();
        self.check()
    }

    /// Remembers a capture that has begun in one of the context's streams.
    pub fn add_capture(&self, capture: &Arc<Capture>) {
        let mut captures = self.captures();
        captures.retain(|known| known.upgrade().is_some_and(|known| !known.has_ended()));
        captures.push(Arc::downgrade(capture));
    }

    /// Work in the legacy default stream would make a blocking stream that is being captured wait
    /// for it: an error, which spoils the capture.
    pub fn forbid_implicit_capture(&self, stream: &Stream) -> Result {
        if !stream.is_legacy() {
            return Ok(());
        }
        match self.active_capture(|capture| capture.origin_is_blocking) {
            None => Ok(()),
            Some(capture) => {
                capture.invalidate();
                fail(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
            }
        }
    }

    /// Fails, and spoils the capture, where a call could disturb one: to allocate or free may wait
    /// for the device, and to query an event tells of work that a capture only records.
    pub fn forbid_while_capturing(&self) -> Result {
        match self.active_capture(Capture::forbids_unsafe_calls) {
            None => Ok(()),
            Some(capture) => {
                capture.invalidate();
                fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
            }
        }
    }

    fn active_capture(&self, wanted: impl Fn(&Capture) -> bool) -> Option<Arc<Capture>> {
        let captures = self.captures();
        captures.iter().filter_map(Weak::upgrade).find(|capture| !capture.has_ended() && wanted(capture))
    }

    fn captures(&self) -> MutexGuard<'_, Vec<Weak<Capture>>> {
        self.captures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The calling thread's current context, if it has seen no fault.
pub fn current() -> Result<Arc<Context>> {
    let context = current_even_if_faulty()?;
    context.check()?;
    Ok(context)
}

/// The calling thread's current context.
pub fn current_even_if_faulty() -> Result<Arc<Context>> {
    device::get()?;
    let handle = current_handle().ok_or(Error(CUDA_ERROR_INVALID_CONTEXT))?;
    CONTEXTS.get(handle).ok_or(Error(CUDA_ERROR_CONTEXT_IS_DESTROYED))
}

/// The calling thread's current context as a handle, whether or not it is alive.
pub fn current_handle() -> Option<u64> {
    thread::with(|state| state.contexts.borrow().last().copied())
}

/// Changes the calling thread's stack of contexts.
fn with_stack<T>(change: impl FnOnce(&mut Vec<u64>) -> T) -> T {
    thread::with(|state| change(&mut state.contexts.borrow_mut()))
}

/// Pushes a context on the thread's stack.
pub fn push(context: &Context) {
    with_stack(|stack| stack.push(context.handle));
}

/// Takes the current context off the thread's stack and returns its handle.
pub fn pop() -> Result<u64> {
    device::get()?;
    with_stack(Vec::pop).ok_or(Error(CUDA_ERROR_INVALID_CONTEXT))
}

/// Replaces the top of the thread's stack; with nothing, takes it off.
pub fn set_current(context: Option<&Context>) {
    with_stack(|stack| {
        stack.pop();
        stack.extend(context.map(|context| context.handle));
    });
}

/// The context that the runtime API and most programs share.
struct Primary {
    /// Made when it is first asked for, and replaced, under the same handle, when it ends: the
    /// runtime keeps the handle, and makes the context current before it retains it.
    context: Option<Arc<Context>>,
    retained: u32,
    flags: u32,
}

impl Primary {
    fn context(&mut self) -> &Arc<Context> {
        let flags = self.flags;
        self.context.get_or_insert_with(|| Context::new(CONTEXTS.reserve(), flags))
    }

    /// Puts a fresh context in the place of the one that is returned, with the end of the old one's
    /// memory: from here on, other threads allocate in the new one.
    fn replace(&mut self) -> (Arc<Context>, u64) {
        let old = self.context().clone();
        let end_of_memory = device::get().map_or(u64::MAX, |device| device.memory.next_id());
        self.retained = 0;
        self.context = Some(Context::new(old.handle, self.flags));
        (old, end_of_memory)
    }
}

fn primary() -> MutexGuard<'static, Primary> {
    PRIMARY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The primary context's handle.
pub fn primary_handle() -> u64 {
    primary().context().handle
}

/// Retains the primary context; returns its handle.
pub fn retain_primary() -> u64 {
    let mut primary = primary();
    primary.retained += 1;
    primary.context().handle
}

/// Takes back one retain; the last ends the context.
pub fn release_primary() -> Result {
    let mut primary = primary();
    ensure(primary.retained > 0, CUDA_ERROR_INVALID_CONTEXT)?;
    primary.retained -= 1;
    if primary.retained == 0 {
        let (ended, end_of_memory) = primary.replace();
        drop(primary);
        ended.end(end_of_memory);
    }
    Ok(())
}

/// Ends the primary context whoever holds it.
pub fn reset_primary() {
    let (ended, end_of_memory) = primary().replace();
    ended.end(end_of_memory);
}

/// The primary context's flags, and whether anybody holds it.
pub fn primary_state() -> (u32, bool) {
    let primary = primary();
    (primary.flags, primary.retained > 0)
}

/// Sets the primary context's flags, now and for when it is made again.
pub fn set_primary_flags(flags: u32) -> Result {
    ensure(are_flags(flags), CUDA_ERROR_INVALID_VALUE)?;
    let mut primary = primary();
    primary.flags = flags;
    match &primary.context {
        Some(context) => context.set_flags(flags),
        None => Ok(()),
    }
}

/// Whether `flags` are flags of a context, with at most one way of waiting.
fn are_flags(flags: u32) -> bool {
    let scheduling = flags & CU_CTX_SCHED_MASK;
    flags & !CU_CTX_FLAGS_MASK == 0
        && [CU_CTX_SCHED_AUTO, CU_CTX_SCHED_SPIN, CU_CTX_SCHED_YIELD, CU_CTX_SCHED_BLOCKING_SYNC]
            .contains(&scheduling)
}
