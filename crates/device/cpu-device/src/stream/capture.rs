//! Stream capture: work submitted to a stream becomes a graph instead of being executed.
//!
//! A capture begins in one stream, its origin, and spreads: a stream that waits for an event
//! recorded in the capture joins it. For each of its streams the capture knows the nodes that the
//! stream's next operation comes behind. It ends in its origin, to which all the others must have
//! been joined again by then. An operation that can't be captured invalidates the capture:
//! everything but its end then fails.

use crate::error::{Error, Result, ensure, fail};
use crate::graph::Graph;
use crate::stream::Stream;
use crate::stream::operation::Operation;
use crate::thread;
use cuda_abi::types::*;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Changes how calls of this thread that could disturb a capture are taken; returns how they were.
pub fn exchange_thread_mode(mode: CUstreamCaptureMode) -> CUstreamCaptureMode {
    thread::with(|state| state.capture_mode.replace(mode))
}

/// One capture.
pub struct Capture {
    /// Unique over the life of the process.
    pub id: u64,
    /// The graph captured so far.
    pub graph: Arc<Graph>,
    /// Whether the capture began in a blocking stream, so that work in the legacy default stream
    /// would disturb it.
    pub origin_is_blocking: bool,
    origin: u64,
    mode: CUstreamCaptureMode,
    thread: u64,
    state: Mutex<State>,
}

struct State {
    status: Status,
    streams: HashMap<u64, Member>,
}

struct Member {
    stream: Arc<Stream>,
    /// The nodes that the stream's next node depends on.
    frontier: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    Active,
    Invalidated,
    Ended,
}

impl Capture {
    /// Begins a capture in `stream` that adds to `graph` behind the nodes of `after`.
    pub fn begin(
        stream: &Arc<Stream>,
        graph: Arc<Graph>,
        after: Vec<u64>,
        mode: CUstreamCaptureMode,
    ) -> Result {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let context = stream.context()?;
        ensure(mode <= CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_INVALID_VALUE)?;
        ensure(!stream.is_legacy(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)?;
        let mut slot = stream.capture_slot();
        ensure(slot.is_none(), CUDA_ERROR_ILLEGAL_STATE)?;
        let member = Member { stream: stream.clone(), frontier: after };
        let capture = Arc::new(Capture {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            graph,
            origin_is_blocking: stream.is_blocking(),
            origin: stream.id,
            mode,
            thread: thread::id(),
            state: Mutex::new(State {
                status: Status::Active,
                streams: HashMap::from([(stream.id, member)]),
            }),
        });
        context.add_capture(&capture);
        *slot = Some(capture);
        Ok(())
    }

    /// Ends the capture of which `stream` is the origin and returns what was captured.
    pub fn end(stream: &Stream) -> Result<Arc<Graph>> {
        let capture = stream.capture().ok_or(Error(CUDA_ERROR_ILLEGAL_STATE))?;
        ensure(capture.origin == stream.id, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED)?;
        let of_this_thread = capture.thread == thread::id();
        ensure(
            of_this_thread || capture.mode == CU_STREAM_CAPTURE_MODE_RELAXED,
            CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
        )?;
        let mut state = capture.lock();
        let status = std::mem::replace(&mut state.status, Status::Ended);
        let streams = std::mem::take(&mut state.streams);
        drop(state);
        streams.values().for_each(|member| *member.stream.capture_slot() = None);
        ensure(status == Status::Active, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)?;
        ensure(capture.all_joined(&streams), CUDA_ERROR_STREAM_CAPTURE_UNJOINED)?;
        Ok(capture.graph.clone())
    }

    /// Adds what was submitted to `stream`.
    pub fn add(&self, stream: &Stream, operation: Operation) -> Result {
        let mut state = self.active()?;
        let member = state.streams.get_mut(&stream.id).ok_or(Error(CUDA_ERROR_ILLEGAL_STATE))?;
        member.frontier = vec![self.graph.add(operation, &member.frontier)?];
        Ok(())
    }

    /// The nodes that the next operation of `stream` comes behind.
    pub fn frontier(&self, stream: &Stream) -> Result<Vec<u64>> {
        let state = self.active()?;
        state
            .streams
            .get(&stream.id)
            .map(|member| member.frontier.clone())
            .ok_or(Error(CUDA_ERROR_ILLEGAL_STATE))
    }

    /// Replaces the nodes that the next operation of `stream` comes behind, or adds to them.
    pub fn set_frontier(&self, stream: &Stream, nodes: &[u64], add: bool) -> Result {
        let mut state = self.active()?;
        ensure(nodes.iter().all(|node| self.graph.node(*node).is_ok()), CUDA_ERROR_INVALID_VALUE)?;
        let member = state.streams.get_mut(&stream.id).ok_or(Error(CUDA_ERROR_ILLEGAL_STATE))?;
        if !add {
            member.frontier.clear();
        }
        extend(&mut member.frontier, nodes);
        Ok(())
    }

    /// Has `stream` come behind `nodes`; a stream that was in no capture joins this one.
    pub fn join(self: &Arc<Capture>, stream: &Arc<Stream>, nodes: &[u64]) -> Result {
        ensure(!self.has_ended(), CUDA_ERROR_STREAM_CAPTURE_ISOLATION)?;
        ensure(!stream.is_legacy(), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)?;
        let mut slot = stream.capture_slot();
        if slot.as_ref().is_some_and(|other| !Arc::ptr_eq(other, self)) {
            return fail(CUDA_ERROR_STREAM_CAPTURE_MERGE);
        }
        let mut state = self.active()?;
        let member = state.streams.entry(stream.id);
        let member = member.or_insert_with(|| Member { stream: stream.clone(), frontier: Vec::new() });
        extend(&mut member.frontier, nodes);
        *slot = Some(self.clone());
        Ok(())
    }

    /// Whether the calling thread must not make calls that could disturb the capture: its own,
    /// unless that is relaxed, and, unless the thread has said that it minds its own only,
    /// everybody's that are global.
    pub fn forbids_unsafe_calls(&self) -> bool {
        let own = self.thread == thread::id() && self.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        match thread::with(|state| state.capture_mode.get()) {
            CU_STREAM_CAPTURE_MODE_RELAXED => false,
            CU_STREAM_CAPTURE_MODE_THREAD_LOCAL => own,
            _ => own || self.mode == CU_STREAM_CAPTURE_MODE_GLOBAL,
        }
    }

    /// Makes the capture fail.
    pub fn invalidate(&self) {
        let mut state = self.lock();
        if state.status == Status::Active {
            state.status = Status::Invalidated;
        }
    }

    /// Whether the capture is over.
    pub fn has_ended(&self) -> bool {
        self.lock().status == Status::Ended
    }

    /// As `cuStreamIsCapturing` tells it.
    pub fn status(&self) -> CUstreamCaptureStatus {
        match self.lock().status {
            Status::Active => CU_STREAM_CAPTURE_STATUS_ACTIVE,
            Status::Invalidated => CU_STREAM_CAPTURE_STATUS_INVALIDATED,
            Status::Ended => CU_STREAM_CAPTURE_STATUS_NONE,
        }
    }

    /// Whether everything that other streams captured comes before the origin's next operation.
    fn all_joined(&self, streams: &HashMap<u64, Member>) -> bool {
        let before: HashMap<u64, Vec<u64>> =
            self.graph.nodes().into_iter().map(|node| (node.handle, node.after)).collect();
        let mut pending: Vec<u64> =
            streams.get(&self.origin).map_or(vec![], |origin| origin.frontier.clone());
        let mut reached = HashSet::new();
        while let Some(node) = pending.pop() {
            if reached.insert(node) {
                pending.extend(before.get(&node).into_iter().flatten());
            }
        }
        streams.values().flat_map(|member| &member.frontier).all(|node| reached.contains(node))
    }

    fn active(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.lock();
        ensure(state.status == Status::Active, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)?;
        Ok(state)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn extend(frontier: &mut Vec<u64>, nodes: &[u64]) {
    for node in nodes {
        if !frontier.contains(node) {
            frontier.push(*node);
        }
    }
}
