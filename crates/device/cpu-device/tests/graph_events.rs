//! Objects that graphs share with their surroundings: events, memory, and objects that they keep
//! alive.

mod common;

use common::{Context, cu, download, event, fails, graph, instantiate, ok, stream, upload};
use cuda_abi::Plain;
use cuda_abi::types::*;
use std::ffi::{CStr, CString, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

/// Nodes that a new one comes behind.
fn behind(node: &CUgraphNode) -> (*const CUgraphNode, usize) {
    (node, usize::from(!node.is_null()))
}

fn fill_node(graph: CUgraph, after: CUgraphNode, destination: CUdeviceptr, value: u32) -> CUgraphNode {
    let (mut node, (after, count)) = (std::ptr::null_mut(), behind(&after));
    let fill =
        CUDA_MEMSET_NODE_PARAMS { dst: destination, value, elementSize: 4, width: 1, height: 1, pitch: 0 };
    ok!(cuGraphAddMemsetNode(&mut node, graph, after, count, &fill, std::ptr::null_mut()));
    node
}

fn word(address: CUdeviceptr) -> u32 {
    u32::from_le_bytes(download(address, 4).try_into().unwrap())
}

#[test]
fn an_event_in_the_middle_of_a_graph_lets_others_go_on_there() {
    let _context = Context::new();
    let (first, second, memory) = (event(), event(), upload(&[0; 12]));
    let (inside, outside) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
    // In the graph: fill, tell the world, wait until word 1 is 7. Outside: wait for the graph's
    // event, write the 7. That ends only if the event is complete before the graph is.
    let graph = graph();
    let filled = fill_node(graph, std::ptr::null_mut(), memory, 5);
    let (mut told, mut waiting) = (std::ptr::null_mut(), std::ptr::null_mut());
    ok!(cuGraphAddEventRecordNode(&mut told, graph, &filled, 1, first));
    ok!(cuStreamBeginCaptureToGraph(
        inside,
        graph,
        &told,
        std::ptr::null(),
        1,
        CU_STREAM_CAPTURE_MODE_RELAXED
    ));
    ok!(cuStreamWaitValue32_v2(inside, memory + 4, 7, CU_STREAM_WAIT_VALUE_EQ));
    let mut same = std::ptr::null_mut();
    ok!(cuStreamEndCapture(inside, &mut same));
    assert_eq!(same, graph);
    ok!(cuGraphAddEventWaitNode(&mut waiting, graph, &told, 1, second));
    fill_node(graph, waiting, memory + 8, 9);
    let exec = instantiate(graph);
    for round in 0..20 {
        ok!(cuMemsetD8_v2(memory, 0, 12));
        ok!(cuCtxSynchronize());
        // The wait is for this record, made before the launch; the one made after it does not
        // matter.
        ok!(cuEventRecord(second, outside));
        ok!(cuGraphLaunch(exec, inside));
        ok!(cuEventRecord(second, inside));
        ok!(cuStreamWaitEvent(outside, first, 0));
        ok!(cuMemsetD32Async(memory + 4, 7, 1, outside));
        ok!(cuEventSynchronize(first));
        assert_eq!(word(memory), 5, "round {round}");
        ok!(cuStreamSynchronize(inside));
        assert_eq!((word(memory + 4), word(memory + 8)), (7, 9));
    }
}

#[test]
fn an_event_that_a_fault_kept_from_its_record_holds_nobody() {
    let context = Context::new();
    let (event, stream) = (event(), stream(CU_STREAM_NON_BLOCKING));
    let image = c".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry stop() { trap; }";
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    ok!(cuModuleLoadData(&mut module, image.as_ptr().cast()));
    ok!(cuModuleGetFunction(&mut function, module, c"stop".as_ptr()));
    let graph = graph();
    let kernel = CUDA_KERNEL_NODE_PARAMS {
        func: function,
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        ..Plain::zeroed()
    };
    let (mut stopped, mut told) = (std::ptr::null_mut(), std::ptr::null_mut());
    ok!(cuGraphAddKernelNode_v2(&mut stopped, graph, std::ptr::null(), 0, &kernel));
    ok!(cuGraphAddEventRecordNode(&mut told, graph, &stopped, 1, event));
    ok!(cuGraphLaunch(instantiate(graph), stream));
    fails!(CUDA_ERROR_LAUNCH_FAILED, cuEventSynchronize(event));
    drop(context);
}

#[test]
fn nodes_of_any_type_allocate_and_free() {
    let _context = Context::new();
    let graph = graph();
    let mut params: CUgraphNodeParams = Plain::zeroed();
    params.r#type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    params.anonymous.alloc = CUDA_MEM_ALLOC_NODE_PARAMS_v2 { bytesize: 4096, ..Plain::zeroed() };
    let (mut allocated, mut freed) = (std::ptr::null_mut(), std::ptr::null_mut());
    ok!(cuGraphAddNode(&mut allocated, graph, std::ptr::null(), 0, &mut params));
    // SAFETY: the call has written this member.
    let address = unsafe { params.anonymous.alloc.dptr };
    let filled = fill_node(graph, allocated, address, 77);
    let target = upload(&[0; 4]);
    let copy = CUDA_MEMCPY3D {
        srcMemoryType: CU_MEMORYTYPE_DEVICE,
        srcDevice: address,
        dstMemoryType: CU_MEMORYTYPE_DEVICE,
        dstDevice: target,
        WidthInBytes: 4,
        Height: 1,
        Depth: 1,
        ..Plain::zeroed()
    };
    let mut copied = std::ptr::null_mut();
    ok!(cuGraphAddMemcpyNode(&mut copied, graph, &filled, 1, &copy, std::ptr::null_mut()));
    params.r#type = CU_GRAPH_NODE_TYPE_MEM_FREE;
    params.anonymous.free = CUDA_MEM_FREE_NODE_PARAMS { dptr: address };
    ok!(cuGraphAddNode_v2(&mut freed, graph, &copied, std::ptr::null(), 1, &mut params));
    let (mut kind, stream) = (0, stream(0));
    ok!(cuGraphNodeGetType(freed, &mut kind));
    assert_eq!(kind, CU_GRAPH_NODE_TYPE_MEM_FREE);
    let exec = instantiate(graph);
    for _ in 0..3 {
        ok!(cuMemsetD32_v2(target, 0, 1));
        ok!(cuGraphLaunch(exec, stream));
        ok!(cuStreamSynchronize(stream));
        assert_eq!(word(target), 77);
    }
}

#[test]
fn user_objects_live_as_long_as_somebody_holds_them() {
    static DESTROYED: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn destroy(data: *mut c_void) {
        DESTROYED.fetch_add(data as usize as u32, Ordering::SeqCst);
    }
    let _context = Context::new();
    let create = |value: usize, references| {
        let mut object = std::ptr::null_mut();
        let data = std::ptr::without_provenance_mut(value);
        ok!(cuUserObjectCreate(
            &mut object,
            data,
            Some(destroy),
            references,
            CU_USER_OBJECT_NO_DESTRUCTOR_SYNC
        ));
        object
    };
    let destroyed = || DESTROYED.load(Ordering::SeqCst);
    let object = create(1, 2);
    ok!(cuUserObjectRetain(object, 1));
    fails!(CUDA_ERROR_INVALID_VALUE, cuUserObjectRelease(object, 4));
    ok!(cuUserObjectRelease(object, 2));
    assert_eq!(destroyed(), 0);
    ok!(cuUserObjectRelease(object, 1));
    assert_eq!(destroyed(), 1);
    fails!(CUDA_ERROR_INVALID_VALUE, cuUserObjectRelease(object, 1));

    // The program's reference moves to a graph, and lives on in what is made of it.
    let object = create(10, 1);
    let (first, mut clone) = (graph(), std::ptr::null_mut());
    ok!(cuGraphRetainUserObject(first, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    ok!(cuGraphClone(&mut clone, first));
    let exec = instantiate(first);
    ok!(cuGraphDestroy(first));
    ok!(cuGraphDestroy(clone));
    assert_eq!(destroyed(), 1);
    ok!(cuGraphExecDestroy(exec));
    assert_eq!(destroyed(), 11);

    // References of a graph's own.
    let object = create(100, 1);
    let holder = graph();
    ok!(cuGraphRetainUserObject(holder, object, 3, 0));
    ok!(cuUserObjectRelease(object, 1));
    ok!(cuGraphReleaseUserObject(holder, object, 2));
    fails!(CUDA_ERROR_INVALID_VALUE, cuGraphReleaseUserObject(holder, object, 2));
    assert_eq!(destroyed(), 11);
    ok!(cuGraphReleaseUserObject(holder, object, 1));
    assert_eq!(destroyed(), 111);
    ok!(cuGraphDestroy(holder));
    let mut none = std::ptr::null_mut();
    fails!(CUDA_ERROR_INVALID_VALUE, cuUserObjectCreate(&mut none, none.cast(), None, 1, 1));
    fails!(CUDA_ERROR_INVALID_VALUE, cuUserObjectCreate(&mut none, none.cast(), Some(destroy), 0, 1));
    fails!(CUDA_ERROR_INVALID_VALUE, cuUserObjectCreate(&mut none, none.cast(), Some(destroy), 1, 0));
}

#[test]
fn a_graph_can_be_drawn() {
    let _context = Context::new();
    let (graph, memory) = (graph(), upload(&[0; 8]));
    let first = fill_node(graph, std::ptr::null_mut(), memory, 1);
    let second = fill_node(graph, first, memory + 4, 1);
    let path = std::env::temp_dir().join(format!("apex-graph-{}.dot", std::process::id()));
    let name = CString::new(path.to_str().unwrap()).unwrap();
    ok!(cuGraphDebugDotPrint(graph, name.as_ptr(), 0));
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let edge = format!("node_{:x} -> node_{:x}", first as u64, second as u64);
    assert!(text.starts_with("digraph") && text.contains(&edge) && text.contains("memset"), "{text}");
    let nowhere: &CStr = c"/nowhere/at/all.dot";
    fails!(CUDA_ERROR_OPERATING_SYSTEM, cuGraphDebugDotPrint(graph, nowhere.as_ptr(), 0));
    let (mut one, mut other) = (0, 0);
    ok!(cuGraphNodeGetLocalId(first, &mut one));
    ok!(cuGraphNodeGetLocalId(second, &mut other));
    assert_ne!(one, other);
}

#[test]
fn calls_that_could_disturb_a_capture_spoil_it() {
    let _context = Context::new();
    let (stream, event) = (stream(CU_STREAM_NON_BLOCKING), event());
    let (global, local, relaxed) =
        (CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED);
    let exchange = |mut mode: CUstreamCaptureMode| {
        ok!(cuThreadExchangeStreamCaptureMode(&mut mode));
        mode
    };
    // The capture's mode, the thread's, and whether an allocation of the same thread is taken
    // amiss.
    let cases = [
        (global, global, true),
        (global, local, true),
        (global, relaxed, false),
        (local, global, true),
        (local, local, true),
        (relaxed, global, false),
        (relaxed, relaxed, false),
    ];
    for (mode, own, forbidden) in cases {
        assert_eq!(exchange(own), global);
        ok!(cuStreamBeginCapture_v2(stream, mode));
        let code = cu!(cuMemAlloc_v2(&mut 0, 64));
        let mut graph = std::ptr::null_mut();
        let ended = cu!(cuStreamEndCapture(stream, &mut graph));
        let expected = match forbidden {
            true => (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
            false => (CUDA_SUCCESS, CUDA_SUCCESS),
        };
        assert_eq!((code, ended), expected, "{mode} {own}");
        assert_eq!(exchange(global), own);
    }
    ok!(cuStreamBeginCapture_v2(stream, local));
    fails!(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuEventQuery(event));
    fails!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &mut std::ptr::null_mut()));
    // Another thread minds global captures only.
    for (mode, forbidden) in [(global, true), (local, false)] {
        ok!(cuStreamBeginCapture_v2(stream, mode));
        let mut context = std::ptr::null_mut();
        ok!(cuCtxGetCurrent(&mut context));
        let handle = context as usize;
        let elsewhere = std::thread::spawn(move || {
            ok!(cuCtxSetCurrent(std::ptr::without_provenance_mut(handle)));
            cu!(cuMemAlloc_v2(&mut 0, 64))
        });
        let code = elsewhere.join().unwrap();
        assert_eq!(code != CUDA_SUCCESS, forbidden, "{mode}");
        cu!(cuStreamEndCapture(stream, &mut std::ptr::null_mut()));
    }
}
