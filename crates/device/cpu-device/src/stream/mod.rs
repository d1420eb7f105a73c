//! Streams: the order of a context's work.
//!
//! The rules are those of the programming guide. Work in a stream is executed in the order of its
//! submission. The legacy default stream waits for all work submitted before to the context's
//! blocking streams, which in turn wait for it; non-blocking streams are independent. A per-thread
//! default stream is an ordinary blocking stream.
//!
//! [`Order`] keeps, for each stream, the task submitted last; new work goes behind that one and
//! behind those that the rules name. One lock covers finding them and taking their place, so that
//! two threads that submit to a stream agree about what came first.

pub mod capture;
pub mod event;
pub mod memory_operation;
pub mod operation;
pub mod task;

use crate::context::{self, Context};
use crate::device;
use crate::error::{Error, Result, ensure, fail};
use crate::handle::{Kind, Table};
use crate::stream::capture::Capture;
use crate::stream::event::Event;
use crate::stream::operation::Operation;
use crate::stream::task::Task;
use crate::thread;
use cuda_abi::types::*;
use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The stream that an entry point means by the null stream: the legacy default stream, or the
/// calling thread's own in the `_ptsz` and `_ptds` variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultStream {
    /// The stream that synchronises with all blocking ones.
    Legacy,
    /// A blocking stream of the calling thread.
    PerThread,
}

const LEGACY_HANDLE: u64 = 1;
const PER_THREAD_HANDLE: u64 = 2;

static STREAMS: Table<Stream> = Table::new(Kind::Stream);

/// The relation of a stream to the legacy default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Legacy,
    Blocking,
    NonBlocking,
}

/// A stream.
pub struct Stream {
    /// As the program knows it: for the default streams, the reserved values.
    pub handle: u64,
    /// Unique over the life of the process.
    pub id: u64,
    /// `CU_STREAM_NON_BLOCKING` or 0.
    pub flags: u32,
    /// Kept, and without effect: every task that is ready runs.
    pub priority: i32,
    class: Class,
    context: Weak<Context>,
    capture: Mutex<Option<Arc<Capture>>>,
    synchronization_policy: AtomicI32,
}

impl Stream {
    fn new(context: &Weak<Context>, class: Class, handle: u64, priority: i32) -> Stream {
        static IDS: AtomicU64 = AtomicU64::new(1);
        Stream {
            handle,
            id: IDS.fetch_add(1, Ordering::Relaxed),
            flags: if class == Class::NonBlocking { CU_STREAM_NON_BLOCKING } else { CU_STREAM_DEFAULT },
            priority,
            class,
            context: context.clone(),
            capture: Mutex::new(None),
            synchronization_policy: AtomicI32::new(CU_SYNC_POLICY_AUTO as i32),
        }
    }

    /// The legacy default stream of a context.
    pub fn legacy(context: &Weak<Context>) -> Stream {
        Stream::new(context, Class::Legacy, LEGACY_HANDLE, 0)
    }

    /// Creates a stream in `context` and names it.
    pub fn create(context: &Arc<Context>, flags: u32, priority: i32) -> Result<Arc<Stream>> {
        ensure(flags & !CU_STREAM_NON_BLOCKING == 0, CUDA_ERROR_INVALID_VALUE)?;
        let class = if flags & CU_STREAM_NON_BLOCKING != 0 { Class::NonBlocking } else { Class::Blocking };
        let priority = priority.clamp(device::GREATEST_PRIORITY, device::LEAST_PRIORITY);
        let stream = Arc::new(Stream::new(&Arc::downgrade(context), class, STREAMS.reserve(), priority));
        STREAMS.insert(stream.handle, stream.clone());
        Ok(stream)
    }

    /// Takes away a stream's name. Its work is still done, and the legacy default stream still
    /// waits for it.
    pub fn destroy(handle: CUstream) -> Result {
        STREAMS.remove(handle as u64).ok_or(Error(CUDA_ERROR_INVALID_HANDLE))?;
        Ok(())
    }

    /// The stream that a handle names, null and the reserved values included.
    pub fn resolve(handle: CUstream, default: DefaultStream) -> Result<Arc<Stream>> {
        match (handle as u64, default) {
            (0, DefaultStream::Legacy) | (LEGACY_HANDLE, _) => Ok(context::current()?.legacy.clone()),
            (0, DefaultStream::PerThread) | (PER_THREAD_HANDLE, _) => Ok(Stream::own(&context::current()?)),
            (handle, _) => {
                device::get()?;
                STREAMS.get(handle).ok_or(Error(CUDA_ERROR_INVALID_HANDLE))
            }
        }
    }

    /// The calling thread's own default stream in `context`.
    fn own(context: &Arc<Context>) -> Arc<Stream> {
        thread::with(|state| {
            let mut streams = state.streams.borrow_mut();
            let as_stream = |kept: &Arc<dyn Any + Send + Sync>| kept.clone().downcast::<Stream>().ok();
            streams.retain(|kept| as_stream(kept).is_some_and(|stream| stream.context.strong_count() > 0));
            let is_here = |stream: &Arc<Stream>| std::ptr::eq(stream.context.as_ptr(), &**context);
            if let Some(stream) = streams.iter().filter_map(as_stream).find(is_here) {
                return stream;
            }
            let weak = Arc::downgrade(context);
            let stream = Arc::new(Stream::new(&weak, Class::Blocking, PER_THREAD_HANDLE, 0));
            streams.push(stream.clone());
            stream
        })
    }

    /// The stream's context, if it is alive and has seen no fault.
    pub fn context(&self) -> Result<Arc<Context>> {
        let context = self.context.upgrade().ok_or(Error(CUDA_ERROR_CONTEXT_IS_DESTROYED))?;
        context.check()?;
        Ok(context)
    }

    /// Submits an operation, or adds it to the graph that is being captured.
    pub fn enqueue(&self, operation: Operation) -> Result {
        let context = self.context()?;
        if let Some(capture) = self.capture() {
            return capture.add(self, operation);
        }
        context.forbid_implicit_capture(self)?;
        task::ensure_thread()?;
        self.submit(&context, operation, &[]).start();
        Ok(())
    }

    /// Submits an operation and waits for it. That can't be captured.
    pub fn run(&self, operation: Operation) -> Result {
        let context = self.context()?;
        self.forbid_in_capture()?;
        context.forbid_implicit_capture(self)?;
        self.submit(&context, operation, &[]).start_and_wait();
        context.check()
    }

    /// Submits an operation behind the stream's work and behind `also`, and returns the task, not
    /// yet started.
    pub fn submit(&self, context: &Arc<Context>, operation: Operation, also: &[Arc<Task>]) -> Arc<Task> {
        let executor = context.clone();
        context.order.append(self, also, move || executor.execute(operation))
    }

    /// Waits until the stream's work is done.
    pub fn synchronize(&self) -> Result {
        let context = self.context()?;
        self.forbid_in_capture()?;
        context.order.before(self).iter().for_each(|task| task.wait());
        context.check()
    }

    /// Returns `CUDA_ERROR_NOT_READY` until the stream's work is done.
    pub fn query(&self) -> Result {
        let context = self.context()?;
        self.forbid_in_capture()?;
        ensure(context.order.before(self).iter().all(|task| task.has_ended()), CUDA_ERROR_NOT_READY)
    }

    /// Makes later work of the stream wait for what `event` was recorded behind.
    pub fn wait_event(self: &Arc<Stream>, event: &Event) -> Result {
        let context = self.context()?;
        if let Some((capture, nodes)) = event.captured() {
            return capture.join(self, &nodes);
        }
        // Work outside of the capture can't be waited for inside: a replay has nothing to wait for.
        ensure(self.capture().is_none(), CUDA_ERROR_STREAM_CAPTURE_ISOLATION)?;
        if let Some(task) = event.pending() {
            self.submit(&context, Operation::Empty, &[task]).start();
        }
        Ok(())
    }

    /// Whether this is the legacy default stream, which can't be captured.
    pub fn is_legacy(&self) -> bool {
        self.class == Class::Legacy
    }

    /// Whether work of the legacy default stream waits for this stream's.
    pub fn is_blocking(&self) -> bool {
        self.class == Class::Blocking
    }

    /// The capture that takes the stream's operations, if there is one.
    pub fn capture(&self) -> Option<Arc<Capture>> {
        self.capture_slot().clone()
    }

    /// Returns the stream's capture, locked.
    pub fn capture_slot(&self) -> MutexGuard<'_, Option<Arc<Capture>>> {
        self.capture.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the way in which a waiting thread waits (`CUsynchronizationPolicy`): kept, and
    /// without effect.
    pub fn synchronization_policy(&self) -> &AtomicI32 {
        &self.synchronization_policy
    }

    /// Fails, and spoils the capture, when the stream is being captured.
    fn forbid_in_capture(&self) -> Result {
        let Some(capture) = self.capture() else { return Ok(()) };
        capture.invalidate();
        fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }
}

/// The task submitted last to each stream of a context.
#[derive(Default)]
pub struct Order {
    state: Mutex<OrderState>,
}

#[derive(Default)]
struct OrderState {
    legacy: Option<Arc<Task>>,
    /// By stream id; with whether the stream is a blocking one.
    tails: HashMap<u64, (Arc<Task>, bool)>,
}

impl Order {
    /// Makes a task the last of `stream`, behind what the stream's class demands and behind `also`.
    fn append(&self, stream: &Stream, also: &[Arc<Task>], work: impl FnOnce() + Send + 'static) -> Arc<Task> {
        let mut state = self.lock();
        let mut after = state.before(stream);
        after.extend_from_slice(also);
        let task = Task::new(work, &after);
        if stream.class == Class::Legacy {
            state.tails.retain(|_, (tail, _)| !tail.has_ended());
            state.legacy = Some(task.clone());
        } else {
            // Streams come and go: now and then those that have nothing left to do are forgotten.
            if state.tails.len() >= 64 && state.tails.len().is_power_of_two() {
                state.tails.retain(|_, (tail, _)| !tail.has_ended());
            }
            state.tails.insert(stream.id, (task.clone(), stream.is_blocking()));
        }
        task
    }

    /// Returns the tasks that work submitted to `stream` now would wait for.
    fn before(&self, stream: &Stream) -> Vec<Arc<Task>> {
        self.lock().before(stream)
    }

    /// Waits for the work of every stream.
    pub fn wait(&self) {
        self.all().iter().for_each(|task| task.wait());
    }

    /// The last task of every stream.
    pub fn all(&self) -> Vec<Arc<Task>> {
        let state = self.lock();
        state.tails.values().map(|(tail, _)| tail).chain(&state.legacy).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, OrderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OrderState {
    fn before(&self, stream: &Stream) -> Vec<Arc<Task>> {
        let own = self.tails.get(&stream.id).map(|(tail, _)| tail);
        match stream.class {
            Class::NonBlocking => own.into_iter().cloned().collect(),
            Class::Blocking => own.into_iter().chain(&self.legacy).cloned().collect(),
            Class::Legacy => {
                let blocking = self.tails.values().filter(|(_, blocking)| *blocking).map(|(tail, _)| tail);
                blocking.chain(&self.legacy).cloned().collect()
            }
        }
    }
}
