//! Stream management, stream capture, host functions and stream memory operations.

use crate::context;
use crate::device;
use crate::entry::{array, entries, opaque, read, refuse, write, write_if_wanted};
use crate::error::{Error, Result, ensure, fail};
use crate::graph::Graph;
use crate::stream::capture::{self, Capture};
use crate::stream::event::Event;
use crate::stream::memory_operation::{WaitValue, Word, WriteValue};
use crate::stream::operation::{HostCall, Operation, StreamCallback};
use crate::stream::{DefaultStream, Stream};
use crate::thread;
use cuda_abi::types::*;
use std::ffi::c_void;
use std::sync::atomic::Ordering;

entries! {
    /// Creates a stream.
    fn cuStreamCreate(stream: *mut CUstream, flags: u32) {
        create(stream, flags, 0)
    }

    /// Creates a stream with a priority.
    fn cuStreamCreateWithPriority(stream: *mut CUstream, flags: u32, priority: i32)
        partly "the priority is stored and has no effect"
    {
        create(stream, flags, priority)
    }

    /// Ends a stream; work that it was given is still done.
    fn cuStreamDestroy_v2(stream: CUstream) {
        Stream::destroy(stream)
    }

    /// Waits until a stream's work is done.
    fn cuStreamSynchronize(stream: CUstream) also cuStreamSynchronize_ptsz [default] {
        Stream::resolve(stream, default)?.synchronize()
    }

    /// Returns `CUDA_ERROR_NOT_READY` until a stream's work is done.
    fn cuStreamQuery(stream: CUstream) also cuStreamQuery_ptsz [default] {
        Stream::resolve(stream, default)?.query()
    }

    /// Makes a stream wait for an event; in a capture, as a node if the flags say so.
    fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: u32) also cuStreamWaitEvent_ptsz [default] {
        ensure(flags & !CU_EVENT_WAIT_EXTERNAL == 0, CUDA_ERROR_INVALID_VALUE)?;
        let stream = Stream::resolve(stream, default)?;
        let event = Event::resolve(event)?;
        match stream.capture() {
            Some(capture) if flags == CU_EVENT_WAIT_EXTERNAL => capture.add(&stream, Operation::Wait(event)),
            _ => stream.wait_event(&event),
        }
    }

    /// A stream's flags.
    fn cuStreamGetFlags(stream: CUstream, flags: *mut u32) also cuStreamGetFlags_ptsz [default] {
        write(flags, Stream::resolve(stream, default)?.flags)
    }

    /// A stream's priority.
    fn cuStreamGetPriority(stream: CUstream, priority: *mut i32) also cuStreamGetPriority_ptsz [default] {
        write(priority, Stream::resolve(stream, default)?.priority)
    }

    /// A number that no other stream has.
    fn cuStreamGetId(stream: CUstream, id: *mut u64) also cuStreamGetId_ptsz [default] {
        write(id, Stream::resolve(stream, default)?.id)
    }

    /// A stream's context.
    fn cuStreamGetCtx(stream: CUstream, context: *mut CUcontext) also cuStreamGetCtx_ptsz [default] {
        write(context, opaque(Stream::resolve(stream, default)?.context()?.handle))
    }

    /// A stream's context; there are no green ones.
    fn cuStreamGetCtx_v2(
        stream: CUstream,
        context: *mut CUcontext,
        green: *mut CUgreenCtx,
    ) also cuStreamGetCtx_v2_ptsz [default] {
        write(context, opaque(Stream::resolve(stream, default)?.context()?.handle))?;
        write_if_wanted(green, std::ptr::null_mut());
        Ok(())
    }

    /// A stream's device.
    fn cuStreamGetDevice(stream: CUstream, device: *mut CUdevice) also cuStreamGetDevice_ptsz [default] {
        Stream::resolve(stream, default)?;
        write(device, device::ORDINAL)
    }

    /// An attribute of a stream.
    fn cuStreamGetAttribute(
        stream: CUstream,
        attribute: CUstreamAttrID,
        value: *mut CUstreamAttrValue,
    ) also cuStreamGetAttribute_ptsz [default] {
        let stream = Stream::resolve(stream, default)?;
        let mut found: CUstreamAttrValue = cuda_abi::Plain::zeroed();
        match attribute {
            CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY => {
                found.syncPolicy = stream.synchronization_policy().load(Ordering::Relaxed) as u32;
            }
            CU_STREAM_ATTRIBUTE_PRIORITY => found.priority = stream.priority,
            CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW
            | CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN
            | CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP => {}
            _ => return fail(CUDA_ERROR_INVALID_VALUE),
        }
        write(value, found)
    }

    /// Sets an attribute of a stream.
    fn cuStreamSetAttribute(
        stream: CUstream,
        attribute: CUstreamAttrID,
        value: *const CUstreamAttrValue,
    ) also cuStreamSetAttribute_ptsz [default] partly "attributes have no effect" {
        let stream = Stream::resolve(stream, default)?;
        let value = read(value)?;
        match attribute {
            CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY => {
                ensure(value.syncPolicy <= CU_SYNC_POLICY_BLOCKING_SYNC, CUDA_ERROR_INVALID_VALUE)?;
                stream.synchronization_policy().store(value.syncPolicy as i32, Ordering::Relaxed);
                Ok(())
            }
            CU_STREAM_ATTRIBUTE_PRIORITY
            | CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW
            | CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN
            | CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP => Ok(()),
            _ => fail(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Copies one stream's attributes to another.
    fn cuStreamCopyAttributes(to: CUstream, from: CUstream) also cuStreamCopyAttributes_ptsz [default] {
        let policy = Stream::resolve(from, default)?.synchronization_policy().load(Ordering::Relaxed);
        Stream::resolve(to, default)?.synchronization_policy().store(policy, Ordering::Relaxed);
        Ok(())
    }

    /// Says which stream uses managed memory: every processor may use it at any time here.
    fn cuStreamAttachMemAsync(
        stream: CUstream,
        address: CUdeviceptr,
        _bytes: usize,
        flags: u32,
    ) also cuStreamAttachMemAsync_ptsz [default] {
        let known = [CU_MEM_ATTACH_GLOBAL, CU_MEM_ATTACH_HOST, CU_MEM_ATTACH_SINGLE];
        ensure(known.contains(&flags), CUDA_ERROR_INVALID_VALUE)?;
        device::get()?.memory.find(address).ok_or(Error(CUDA_ERROR_INVALID_VALUE))?;
        Stream::resolve(stream, default)?.enqueue(Operation::Empty)
    }

    /// Calls a function of the program's at its place in a stream.
    fn cuLaunchHostFunc(
        stream: CUstream,
        function: CUhostFn,
        data: *mut c_void,
    ) also cuLaunchHostFunc_ptsz [default] {
        let function = function.ok_or(Error(CUDA_ERROR_INVALID_VALUE))?;
        Stream::resolve(stream, default)?.enqueue(Operation::Host(HostCall { function, data }))
    }

    /// Calls a function of the program's at its place in a stream.
    fn cuLaunchHostFunc_v2(
        stream: CUstream,
        function: CUhostFn,
        data: *mut c_void,
        _mode: u32,
    ) also cuLaunchHostFunc_v2_ptsz [default] partly "the kind of wait for the function cannot be selected" {
        let function = function.ok_or(Error(CUDA_ERROR_INVALID_VALUE))?;
        Stream::resolve(stream, default)?.enqueue(Operation::Host(HostCall { function, data }))
    }

    /// Calls a function of the program's in stream order, with the status of the work before it.
    fn cuStreamAddCallback(
        stream: CUstream,
        callback: CUstreamCallback,
        data: *mut c_void,
        flags: u32,
    ) also cuStreamAddCallback_ptsz [default] {
        ensure(flags == 0, CUDA_ERROR_INVALID_VALUE)?;
        let function = callback.ok_or(Error(CUDA_ERROR_INVALID_VALUE))?;
        let target = Stream::resolve(stream, default)?;
        ensure(target.capture().is_none(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)?;
        target.enqueue(Operation::Callback(StreamCallback { function, stream, data }))
    }

    /// Begins a capture, in the mode that there was first.
    fn cuStreamBeginCapture(stream: CUstream) also cuStreamBeginCapture_ptsz [default] {
        let mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
        Capture::begin(&Stream::resolve(stream, default)?, Graph::create(), vec![], mode)
    }

    /// Begins a capture.
    fn cuStreamBeginCapture_v2(
        stream: CUstream,
        mode: CUstreamCaptureMode,
    ) also cuStreamBeginCapture_v2_ptsz [default] {
        Capture::begin(&Stream::resolve(stream, default)?, Graph::create(), vec![], mode)
    }

    /// Begins a capture that adds to a graph.
    fn cuStreamBeginCaptureToGraph(
        stream: CUstream,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        _edges: *const CUgraphEdgeData,
        count: usize,
        mode: CUstreamCaptureMode,
    ) also cuStreamBeginCaptureToGraph_ptsz [default] {
        let graph = Graph::resolve(graph)?;
        let after: Vec<u64> = array(dependencies, count)?.iter().map(|node| *node as u64).collect();
        for node in &after {
            graph.node(*node)?;
        }
        Capture::begin(&Stream::resolve(stream, default)?, graph, after, mode)
    }

    /// Ends a capture.
    fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) also cuStreamEndCapture_ptsz [default] {
        // A program that captures into a graph of its own has no need of the answer.
        let captured = Capture::end(&*Stream::resolve(stream, default)?);
        write_if_wanted(graph, captured.as_ref().map_or(std::ptr::null_mut(), |graph| opaque(graph.handle)));
        captured.map(drop)
    }

    /// Returns the state of a stream's capture.
    fn cuStreamIsCapturing(
        stream: CUstream,
        status: *mut CUstreamCaptureStatus,
    ) also cuStreamIsCapturing_ptsz [default] {
        let stream = Stream::resolve(stream, default)?;
        write(status, stream.capture().map_or(CU_STREAM_CAPTURE_STATUS_NONE, |capture| capture.status()))
    }

    /// Returns the state of a stream's capture, and the capture's identifier.
    fn cuStreamGetCaptureInfo(
        stream: CUstream,
        status: *mut CUstreamCaptureStatus,
        id: *mut u64,
    ) also cuStreamGetCaptureInfo_ptsz [default] {
        let (graph, dependencies, count) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        capture_info(stream, default, CaptureInfo { status, id, graph, dependencies, count })
    }

    /// Returns the state, graph and dependencies of a stream's capture.
    fn cuStreamGetCaptureInfo_v2(
        stream: CUstream,
        status: *mut CUstreamCaptureStatus,
        id: *mut u64,
        graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode,
        count: *mut usize,
    ) also cuStreamGetCaptureInfo_v2_ptsz [default] {
        capture_info(stream, default, CaptureInfo { status, id, graph, dependencies, count })
    }

    /// Returns the state, graph, dependencies and edges of a stream's capture.
    fn cuStreamGetCaptureInfo_v3(
        stream: CUstream,
        status: *mut CUstreamCaptureStatus,
        id: *mut u64,
        graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode,
        edges: *mut *const CUgraphEdgeData,
        count: *mut usize,
    ) also cuStreamGetCaptureInfo_v3_ptsz [default] {
        write_if_wanted(edges, std::ptr::null());
        capture_info(stream, default, CaptureInfo { status, id, graph, dependencies, count })
    }

    /// Changes what the next operation of a stream that is being captured comes behind.
    fn cuStreamUpdateCaptureDependencies(
        stream: CUstream,
        dependencies: *mut CUgraphNode,
        count: usize,
        flags: u32,
    ) also cuStreamUpdateCaptureDependencies_ptsz [default] {
        set_frontier(&*Stream::resolve(stream, default)?, array(dependencies, count)?, flags)
    }

    /// Changes what the next operation of a stream that is being captured comes behind.
    fn cuStreamUpdateCaptureDependencies_v2(
        stream: CUstream,
        dependencies: *mut CUgraphNode,
        _edges: *const CUgraphEdgeData,
        count: usize,
        flags: u32,
    ) also cuStreamUpdateCaptureDependencies_v2_ptsz [default] {
        set_frontier(&*Stream::resolve(stream, default)?, array(dependencies, count)?, flags)
    }

    /// Exchanges the thread's capture mode.
    fn cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode) {
        device::get()?;
        let wanted = read(mode)?;
        ensure(wanted <= CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_INVALID_VALUE)?;
        write(mode, capture::exchange_thread_mode(wanted))
    }

    /// Waits, in a stream, for a word of memory to change.
    fn cuStreamWaitValue32_v2(
        stream: CUstream,
        address: CUdeviceptr,
        value: u32,
        flags: u32,
    ) also cuStreamWaitValue32_v2_ptsz [default] {
        let wait = WaitValue::new(Word::at(address, false)?, value.into(), flags)?;
        Stream::resolve(stream, default)?.enqueue(Operation::WaitValue(wait))
    }

    /// Waits, in a stream, for a word of memory to change.
    fn cuStreamWaitValue64_v2(
        stream: CUstream,
        address: CUdeviceptr,
        value: u64,
        flags: u32,
    ) also cuStreamWaitValue64_v2_ptsz [default] {
        let wait = WaitValue::new(Word::at(address, true)?, value, flags)?;
        Stream::resolve(stream, default)?.enqueue(Operation::WaitValue(wait))
    }

    /// Writes, in a stream, a word of memory.
    fn cuStreamWriteValue32_v2(
        stream: CUstream,
        address: CUdeviceptr,
        value: u32,
        flags: u32,
    ) also cuStreamWriteValue32_v2_ptsz [default] {
        ensure(flags & !CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER == 0, CUDA_ERROR_INVALID_VALUE)?;
        let write = WriteValue { word: Word::at(address, false)?, value: value.into() };
        Stream::resolve(stream, default)?.enqueue(Operation::WriteValue(write))
    }

    /// Writes, in a stream, a word of memory.
    fn cuStreamWriteValue64_v2(
        stream: CUstream,
        address: CUdeviceptr,
        value: u64,
        flags: u32,
    ) also cuStreamWriteValue64_v2_ptsz [default] {
        ensure(flags & !CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER == 0, CUDA_ERROR_INVALID_VALUE)?;
        let write = WriteValue { word: Word::at(address, true)?, value };
        Stream::resolve(stream, default)?.enqueue(Operation::WriteValue(write))
    }

    /// Writes words of memory and waits for them, in a stream, in the order given.
    fn cuStreamBatchMemOp_v2(
        stream: CUstream,
        count: u32,
        operations: *mut CUstreamBatchMemOpParams,
        flags: u32,
    ) also cuStreamBatchMemOp_v2_ptsz [default] partly "atomic reductions are refused" {
        batch(&*Stream::resolve(stream, default)?, array(operations, count as usize)?, flags)
    }

    /// Writes words of memory and waits for them, in a stream, in the order given.
    fn cuStreamBatchMemOp(
        stream: CUstream,
        count: u32,
        operations: *mut CUstreamBatchMemOpParams,
        flags: u32,
    ) also cuStreamBatchMemOp_ptsz [default] partly "atomic reductions are refused" {
        batch(&*Stream::resolve(stream, default)?, array(operations, count as usize)?, flags)
    }
}

/// # Safety
///
/// `stream` is null or valid for a write.
unsafe fn create(stream: *mut CUstream, flags: u32, priority: i32) -> Result {
    ensure(!stream.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    let created = Stream::create(&context::current()?, flags, priority)?;
    // SAFETY: as promised by the caller.
    unsafe { write(stream, opaque(created.handle)) }
}

/// The program's places for the state of a capture.
struct CaptureInfo {
    status: *mut CUstreamCaptureStatus,
    id: *mut u64,
    graph: *mut CUgraph,
    dependencies: *mut *const CUgraphNode,
    count: *mut usize,
}

/// # Safety
///
/// The pointers of `out` are null or valid for writes.
unsafe fn capture_info(stream: CUstream, default: DefaultStream, out: CaptureInfo) -> Result {
    let stream = Stream::resolve(stream, default)?;
    let capture = stream.capture();
    let status = capture.as_ref().map_or(CU_STREAM_CAPTURE_STATUS_NONE, |capture| capture.status());
    // SAFETY: as promised by the caller.
    unsafe { write(out.status, status)? };
    let Some(capture) = capture.filter(|_| status == CU_STREAM_CAPTURE_STATUS_ACTIVE) else { return Ok(()) };
    let nodes = capture.frontier(&stream)?;
    thread::with(|state| {
        let mut kept = state.reported_nodes.borrow_mut();
        *kept = nodes.iter().map(|node| opaque(*node)).collect();
        // SAFETY: as promised by the caller.
        unsafe {
            write_if_wanted(out.id, capture.id);
            write_if_wanted(out.graph, opaque(capture.graph.handle));
            write_if_wanted(out.dependencies, kept.as_ptr());
            write_if_wanted(out.count, kept.len());
        }
    });
    Ok(())
}

fn set_frontier(stream: &Stream, nodes: &[CUgraphNode], flags: u32) -> Result {
    ensure(flags <= CU_STREAM_SET_CAPTURE_DEPENDENCIES, CUDA_ERROR_INVALID_VALUE)?;
    let capture = stream.capture().ok_or(Error(CUDA_ERROR_ILLEGAL_STATE))?;
    let nodes: Vec<u64> = nodes.iter().map(|node| *node as u64).collect();
    capture.set_frontier(stream, &nodes, flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES)
}

/// The most operations of a batch, as the driver's reference has it.
const MOST_OPERATIONS: usize = 256;

/// # Safety
///
/// Each operation's type says which member of its union was written.
unsafe fn batch(stream: &Stream, operations: &[CUstreamBatchMemOpParams], flags: u32) -> Result {
    ensure(flags == 0 && operations.len() <= MOST_OPERATIONS, CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: as promised by the caller.
    let operations = operations.iter().map(|operation| unsafe { memory_operation(operation) });
    // All are checked before the first is submitted.
    let operations = operations.collect::<Result<Vec<_>>>()?;
    operations.into_iter().try_for_each(|operation| stream.enqueue(operation))
}

/// # Safety
///
/// As for [`batch`].
unsafe fn memory_operation(given: &CUstreamBatchMemOpParams) -> Result<Operation> {
    // SAFETY: as promised by the caller.
    unsafe {
        match given.operation {
            kind @ (CU_STREAM_MEM_OP_WAIT_VALUE_32 | CU_STREAM_MEM_OP_WAIT_VALUE_64) => {
                let (given, wide) = (given.waitValue, kind == CU_STREAM_MEM_OP_WAIT_VALUE_64);
                let value = if wide { given.anonymous.value64 } else { given.anonymous.value.into() };
                Ok(Operation::WaitValue(WaitValue::new(Word::at(given.address, wide)?, value, given.flags)?))
            }
            kind @ (CU_STREAM_MEM_OP_WRITE_VALUE_32 | CU_STREAM_MEM_OP_WRITE_VALUE_64) => {
                let (given, wide) = (given.writeValue, kind == CU_STREAM_MEM_OP_WRITE_VALUE_64);
                let value = if wide { given.anonymous.value64 } else { given.anonymous.value.into() };
                Ok(Operation::WriteValue(WriteValue { word: Word::at(given.address, wide)?, value }))
            }
            // Writes are seen by everybody in their order.
            CU_STREAM_MEM_OP_BARRIER | CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES => Ok(Operation::Empty),
            CU_STREAM_MEM_OP_ATOMIC_REDUCTION => refuse(
                "atomic reductions among stream memory operations; launch a kernel that does the atomic",
            ),
            _ => fail(CUDA_ERROR_INVALID_VALUE),
        }
    }
}
