//! Events: points in a stream's work that can be waited for and timed.
//!
//! An event refers to the task that was recorded last; another recording does not affect those who
//! already wait. While the capture in which an event was recorded goes on, a query or a wait for
//! the event fails and invalidates the capture.

use crate::context::{self, Context};
use crate::device;
use crate::error::{Error, Result, ensure, fail};
use crate::handle::{Kind, Table};
use crate::memory::ipc::SharedEvent;
use crate::stream::Stream;
use crate::stream::capture::Capture;
use crate::stream::operation::Operation;
use crate::stream::task::Task;
use cuda_abi::types::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The time between two looks at an event of another process.
const SHARED_POLL: Duration = Duration::from_micros(50);

static EVENTS: Table<Event> = Table::new(Kind::Event);

/// An event.
pub struct Event {
    /// As the program knows it.
    pub handle: u64,
    /// The context it was created in, by handle.
    context: u64,
    flags: u32,
    state: Mutex<State>,
    /// The part that other processes see, if it is shared.
    shared: Option<Arc<SharedEvent>>,
}

/// The time at which an event's point was reached; empty until then.
pub type Moment = Arc<OnceLock<Instant>>;

enum State {
    /// Never recorded: complete, and without a time.
    New,
    Recorded {
        task: Arc<Task>,
        moment: Moment,
    },
    /// Recorded in a stream that is being captured, behind these nodes.
    Captured {
        capture: Arc<Capture>,
        nodes: Vec<u64>,
    },
}

impl Event {
    /// Creates an event in the current context and names it.
    pub fn create(flags: u32) -> Result<Arc<Event>> {
        let context = context::current()?.handle;
        let known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
        ensure(flags & !known == 0, CUDA_ERROR_INVALID_VALUE)?;
        // An event that others can open must not be timed.
        let shared = flags & CU_EVENT_INTERPROCESS != 0;
        ensure(!shared || flags & CU_EVENT_DISABLE_TIMING != 0, CUDA_ERROR_INVALID_VALUE)?;
        let state = Mutex::new(State::New);
        let shared = if shared { Some(SharedEvent::create()?) } else { None };
        let event = Arc::new(Event { handle: EVENTS.reserve(), context, flags, state, shared });
        EVENTS.insert(event.handle, event.clone());
        Ok(event)
    }

    /// An event of another process, in the current context.
    pub fn open(shared: Arc<SharedEvent>) -> Result<Arc<Event>> {
        let context = context::current()?.handle;
        let flags = CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
        let (state, shared) = (Mutex::new(State::New), Some(shared));
        let event = Arc::new(Event { handle: EVENTS.reserve(), context, flags, state, shared });
        EVENTS.insert(event.handle, event.clone());
        Ok(event)
    }

    /// Returns the part that other processes see.
    pub fn shared(&self) -> Option<&Arc<SharedEvent>> {
        self.shared.as_ref()
    }

    /// The event that a handle names.
    pub fn resolve(handle: CUevent) -> Result<Arc<Event>> {
        device::get()?;
        EVENTS.get(handle as u64).ok_or(Error(CUDA_ERROR_INVALID_HANDLE))
    }

    /// Takes away an event's name. What waits for it still does.
    pub fn destroy(handle: CUevent) -> Result {
        EVENTS.remove(handle as u64).ok_or(Error(CUDA_ERROR_INVALID_HANDLE))?;
        Ok(())
    }

    /// Records the event behind what `stream` has been given so far.
    pub fn record(self: &Arc<Event>, stream: &Stream) -> Result {
        let context = stream.context()?;
        ensure(context.handle == self.context, CUDA_ERROR_INVALID_HANDLE)?;
        if let Some(capture) = stream.capture() {
            let nodes = capture.frontier(stream)?;
            *self.lock() = State::Captured { capture, nodes };
            return Ok(());
        }
        let moment = Moment::default();
        let operation = match &self.shared {
            None => Operation::Mark(moment.clone()),
            Some(shared) => Operation::ReachShared(shared.clone(), shared.record()),
        };
        let task = stream.submit(&context, operation, &[]);
        self.set_recorded(task.clone(), moment);
        task.start();
        Ok(())
    }

    /// Records the event behind `stream`'s work as a node of the graph being captured
    /// (`CU_EVENT_RECORD_EXTERNAL`), or as [`Event::record`] does when nothing is.
    pub fn record_external(self: &Arc<Event>, stream: &Stream) -> Result {
        match stream.capture() {
            Some(capture) => capture.add(stream, Operation::Record(self.clone())),
            None => self.record(stream),
        }
    }

    /// Records the event as it is when a graph is launched: complete when the launch has come to
    /// the event's node.
    pub fn plan_record(&self) -> Arc<PlannedRecord> {
        let moment = Moment::default();
        let mark = moment.clone();
        let shared = self.shared.clone().map(|shared| (shared.record(), shared));
        let work = move || {
            let _ = mark.set(Instant::now());
            shared.iter().for_each(|(record, shared)| shared.reach(*record));
        };
        let task = Task::new(work, &[]);
        self.set_recorded(task.clone(), moment);
        Arc::new(PlannedRecord { task, reached: AtomicBool::new(false) })
    }

    /// Makes the event complete when `task`, which sets `moment`, has run.
    fn set_recorded(&self, task: Arc<Task>, moment: Moment) {
        *self.lock() = State::Recorded { task, moment };
    }

    /// The task to wait for, unless there is nothing to wait for.
    pub fn pending(&self) -> Option<Arc<Task>> {
        if let Some(shared) = &self.shared {
            return (!shared.is_complete()).then(|| wait_for(shared));
        }
        match &*self.lock() {
            State::Recorded { task, .. } if !task.has_ended() => Some(task.clone()),
            _ => None,
        }
    }

    /// The capture in which the event was recorded last, and the nodes it stands behind.
    pub fn captured(&self) -> Option<(Arc<Capture>, Vec<u64>)> {
        match &*self.lock() {
            State::Captured { capture, nodes } => Some((capture.clone(), nodes.clone())),
            _ => None,
        }
    }

    /// Returns `CUDA_ERROR_NOT_READY` until the event's point has been reached.
    pub fn query(&self) -> Result {
        self.forbid_captured()?;
        let complete = match &self.shared {
            Some(shared) => shared.is_complete(),
            None => self.pending().is_none(),
        };
        ensure(complete, CUDA_ERROR_NOT_READY)
    }

    /// Waits until the event's point has been reached.
    pub fn synchronize(&self) -> Result {
        self.forbid_captured()?;
        if let Some(task) = self.pending() {
            task.wait();
        }
        Ok(())
    }

    /// Milliseconds from this event's point to the other's.
    pub fn milliseconds_until(&self, end: &Event) -> Result<f32> {
        let (start, end) = (self.time()?, end.time()?);
        // Streams may reach the two in either order.
        let forward = end.saturating_duration_since(start).as_secs_f64();
        let backward = start.saturating_duration_since(end).as_secs_f64();
        Ok(((forward - backward) * 1e3) as f32)
    }

    fn time(&self) -> Result<Instant> {
        ensure(self.flags & CU_EVENT_DISABLE_TIMING == 0, CUDA_ERROR_INVALID_HANDLE)?;
        match &*self.lock() {
            State::Recorded { task, moment } if task.has_ended() => {
                moment.get().copied().ok_or(Error(CUDA_ERROR_INVALID_HANDLE))
            }
            State::Recorded { .. } => fail(CUDA_ERROR_NOT_READY),
            State::New | State::Captured { .. } => fail(CUDA_ERROR_INVALID_HANDLE),
        }
    }

    fn forbid_captured(&self) -> Result {
        let Some((capture, _)) = self.captured() else { return Ok(()) };
        if capture.has_ended() {
            return Ok(());
        }
        capture.invalidate();
        fail(CUDA_ERROR_CAPTURED_EVENT)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task that ends when another process has reached the record that is the last now.
fn wait_for(shared: &Arc<SharedEvent>) -> Arc<Task> {
    let (event, record) = (shared.clone(), shared.last_record());
    let poll = move || {
        while !event.has_reached(record) {
            std::thread::sleep(SHARED_POLL);
        }
    };
    let task = Task::new(poll, &[]);
    task.start();
    task
}

/// An event's node in a launch of a graph.
pub struct PlannedRecord {
    task: Arc<Task>,
    reached: AtomicBool,
}

impl PlannedRecord {
    /// Completes the event, unless that has been done.
    pub fn reach(&self) {
        if !self.reached.swap(true, Ordering::AcqRel) {
            self.task.start_and_wait();
        }
    }
}

/// Events recorded for the whole of `context`'s work (`cuCtxRecordEvent`).
pub fn record_behind_everything(event: &Event, context: &Arc<Context>) {
    let moment = Moment::default();
    let mark = moment.clone();
    let shared = event.shared.clone().map(|shared| (shared.record(), shared));
    let work = move || {
        let _ = mark.set(Instant::now());
        shared.iter().for_each(|(record, shared)| shared.reach(*record));
    };
    let task = Task::new(work, &context.order.all());
    event.set_recorded(task.clone(), moment);
    task.start();
}
