//! Operations: everything that a stream can execute and that a graph can contain as a node.
//!
//! Both use the same type. A captured stream therefore turns its operations into nodes without
//! translating them, and launching a graph does what a stream would have done.

use crate::context::Context;
use crate::error::{Result, fail};
use crate::graph::condition::{Condition, Conditional};
use crate::graph::{Graph, GraphExec};
use crate::launch::Launch;
use crate::memory::copy::{Copy, Fill};
use crate::memory::graph_memory::GraphMemory;
use crate::memory::ipc::SharedEvent;
use crate::memory::pool;
use crate::stream::event::{Event, Moment, PlannedRecord};
use crate::stream::memory_operation::{WaitValue, WriteValue};
use crate::stream::task::Task;
use crate::thread;
use cuda_abi::types::{CUDA_ERROR_UNKNOWN, CUDA_SUCCESS, CUresult, CUstream};
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Instant;

/// Something to do, complete with its operands.
#[derive(Clone)]
pub enum Operation {
    /// Nothing: a point that others are ordered by.
    Empty,
    /// A kernel.
    Kernel(Arc<Launch>),
    /// A copy.
    Copy(Copy),
    /// A fill.
    Fill(Fill),
    /// A function of the program's.
    Host(HostCall),
    /// A stream callback of the program's, which is called after a fault too.
    Callback(StreamCallback),
    /// Notes the time.
    Mark(Moment),
    /// Records an event, as a node of a graph.
    Record(Arc<Event>),
    /// Waits for an event, as a node of a graph.
    Wait(Arc<Event>),
    /// Allocates memory of a graph: when a launch is submitted, so there is nothing left to
    /// execute.
    Allocate(Arc<GraphMemory>),
    /// Frees what `cuMemAllocAsync` or a graph has allocated.
    Free(u64),
    /// Writes a value to memory.
    WriteValue(WriteValue),
    /// Waits for memory to have a value.
    WaitValue(WaitValue),
    /// All nodes of a graph, as a node of another that has not been instantiated.
    Child(Arc<Graph>),
    /// A conditional node that has not been instantiated.
    Conditional(Conditional<Arc<Graph>>),
    /// A conditional node of an instantiated graph.
    Branch(Conditional<Arc<GraphExec>>),
    /// Takes the place of [`Operation::Branch`] in a launch.
    Choose(Conditional<Arc<[Operation]>>),
    /// Tells other processes that an event has been reached.
    ReachShared(Arc<SharedEvent>, u64),
    /// Gives conditions the values that launches start with.
    AssignDefaults(Arc<[Arc<Condition>]>),
    /// All nodes of a graph.
    Graph(Arc<GraphExec>),
    /// One thing after the other: what a graph was made of when it was launched.
    Sequence(Arc<[Operation]>),
    /// Takes the place of [`Operation::Record`] in a launch.
    Reach(Arc<PlannedRecord>),
    /// Takes the place of [`Operation::Wait`] in a launch.
    Join(Arc<Task>),
}

impl Operation {
    /// Does it, on the calling thread. An error is a fault of the context.
    pub fn execute(self, context: &Context) -> Result {
        match self {
            Operation::Empty | Operation::Allocate(_) => Ok(()),
            Operation::Kernel(launch) => launch.execute(context),
            Operation::Copy(copy) => copy.execute(),
            Operation::Fill(fill) => fill.execute(),
            Operation::Host(call) => call.execute(),
            Operation::Callback(callback) => callback.execute(CUDA_SUCCESS),
            Operation::Mark(moment) => {
                let _ = moment.set(Instant::now());
                Ok(())
            }
            Operation::Free(address) => thread::in_call("a stream-ordered free", || pool::free(address)),
            Operation::ReachShared(event, record) => {
                event.reach(record);
                Ok(())
            }
            Operation::WriteValue(write) => write.execute(),
            Operation::WaitValue(wait) => wait.execute(context),
            Operation::Reach(point) => {
                point.reach();
                Ok(())
            }
            Operation::Join(task) => {
                task.wait();
                Ok(())
            }
            Operation::Sequence(operations) => execute_all(&operations, context),
            Operation::Choose(conditional) => conditional.execute(context),
            Operation::AssignDefaults(conditions) => {
                conditions.iter().for_each(|condition| condition.assign_default());
                Ok(())
            }
            // A launch has other operations in their places.
            Operation::Conditional(_)
            | Operation::Branch(_)
            | Operation::Child(_)
            | Operation::Graph(_)
            | Operation::Record(_)
            | Operation::Wait(_) => fail(CUDA_ERROR_UNKNOWN),
        }
    }
}

fn execute_all(operations: &[Operation], context: &Context) -> Result {
    operations.iter().try_for_each(|operation| operation.clone().execute(context))
}

/// A function that the program wants called at its place in a stream.
#[derive(Clone, Copy, Debug)]
pub struct HostCall {
    /// The function.
    pub function: unsafe extern "C" fn(*mut c_void),
    /// The function's argument.
    pub data: *mut c_void,
}

// SAFETY: a program that submits a host function knows that another thread calls it; the pointer is
// its own business.
unsafe impl Send for HostCall {}
// SAFETY: as for `Send`.
unsafe impl Sync for HostCall {}

impl HostCall {
    fn execute(self) -> Result {
        // SAFETY: the program vouches for its function and for the data that goes with it.
        unsafe { (self.function)(self.data) };
        Ok(())
    }
}

/// A function that `cuStreamAddCallback` adds, with its argument.
#[derive(Clone, Copy, Debug)]
pub struct StreamCallback {
    /// The function.
    pub function: unsafe extern "C" fn(CUstream, CUresult, *mut c_void),
    /// The stream as the program named it.
    pub stream: CUstream,
    /// The function's argument.
    pub data: *mut c_void,
}

// SAFETY: as for `HostCall`; the stream is a handle.
unsafe impl Send for StreamCallback {}
// SAFETY: as for `Send`.
unsafe impl Sync for StreamCallback {}

impl StreamCallback {
    /// Calls the function and tells it how the work before it went.
    pub fn execute(self, code: CUresult) -> Result {
        // SAFETY: the program vouches for its function and for the data that goes with it.
        unsafe { (self.function)(self.stream, code, self.data) };
        Ok(())
    }
}
