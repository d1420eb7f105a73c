//! Programs that capture launches and make, change and launch graphs.

use crate::driver::*;
use cuda_abi::types::*;
use cuda_abi::{Plain, index};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

/// Captures on one stream while another works, as PyTorch does.
pub fn capture() {
    context();
    let module = module(c"captured_1000 executed_1000");
    let (captured, executed) = (function(module, c"captured_1000"), function(module, c"executed_1000"));
    let (one, other) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
    let launch_both = |times: usize| {
        for _ in 0..times {
            launch(captured, 1, one);
            launch(executed, 1, other);
        }
    };
    launch_both(5);
    check(cuda!(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_GLOBAL)));
    launch_both(50);
    launch(executed, 1, null_mut());
    let mut graph = null_mut();
    check(cuda!(cuStreamEndCapture(one, &mut graph)));
    launch_both(5);

    // On a stream on which nothing was done before.
    let fresh = stream(CU_STREAM_NON_BLOCKING);
    check(cuda!(cuStreamBeginCapture_v2(fresh, CU_STREAM_CAPTURE_MODE_GLOBAL)));
    launch(captured, 1, fresh);
    check(cuda!(cuStreamEndCapture(fresh, &mut graph)));
    println!("{}", fake::<extern "C" fn() -> u64>(c"fake_violations")());

    // A capture that is never ended goes with its stream.
    check(cuda!(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_GLOBAL)));
    check(cuda!(cuStreamDestroy_v2(one)));
    let asked = calls(index::cuStreamIsCapturing);
    launch(executed, 1, other);
    assert_eq!(calls(index::cuStreamIsCapturing), asked, "nobody asks where nothing is captured");
}

/// Captures again and again in one thread while others launch.
pub fn capture_race(captures: usize) {
    let context = context() as usize;
    let module = module(c"raced_1000") as usize;
    launch(function(module as CUmodule, c"raced_1000"), 1, null_mut());
    let running = AtomicBool::new(true);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                check(cuda!(cuCtxSetCurrent(context as CUcontext)));
                let (function, stream) =
                    (function(module as CUmodule, c"raced_1000"), stream(CU_STREAM_NON_BLOCKING));
                let launch = launcher();
                while running.load(Ordering::Relaxed) {
                    check(launch(function, 1, stream));
                }
            });
        }
        let (function, stream) =
            (function(module as CUmodule, c"raced_1000"), stream(CU_STREAM_NON_BLOCKING));
        for _ in 0..captures {
            let mut graph = null_mut();
            check(cuda!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL)));
            (0..20).for_each(|_| launch(function, 1, stream));
            check(cuda!(cuStreamEndCapture(stream, &mut graph)));
            std::thread::yield_now();
        }
        running.store(false, Ordering::Relaxed);
    });
    println!("{}", fake::<extern "C" fn() -> u64>(c"fake_violations")());
}

/// Makes, launches, updates and destroys graphs.
pub fn graphs() {
    context();
    let module = module(c"first_1000 second_2000");
    let (first, second) = (function(module, c"first_1000"), function(module, c"second_2000"));
    let stream = stream(CU_STREAM_NON_BLOCKING);
    let capture = |work: &dyn Fn()| {
        let mut graph = null_mut();
        check(cuda!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL)));
        work();
        check(cuda!(cuStreamEndCapture(stream, &mut graph)));
        graph
    };
    let graph = capture(&|| {
        (0..3).for_each(|_| launch(first, 1, stream));
        launch(second, 2, stream);
        check(cuda!(cuMemsetD32Async(0x7000_0000_0000, 0, 4, stream)));
        check(cuda!(cuMemcpyHtoDAsync_v2(0x7000_0000_0000, 0x1001 as *const c_void, 4, stream)));
    });
    let inner = capture(&|| launch(second, 5, stream));
    fake::<extern "C" fn(CUgraph, CUgraph) -> CUgraphNode>(c"fake_add_child")(graph, inner);

    let mut made = null_mut();
    check(cuda!(cuGraphInstantiateWithFlags(&mut made, graph, 0)));
    let launch_graph = |times: usize| (0..times).for_each(|_| check(cuda!(cuGraphLaunch(made, stream))));
    launch_graph(10);

    // One node gets another grid; then the same again, which is the same state.
    let mut nodes = [null_mut(); 8];
    let mut count = nodes.len();
    check(cuda!(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count)));
    let mut parameters = CUDA_KERNEL_NODE_PARAMS::zeroed();
    check(cuda!(cuGraphKernelNodeGetParams_v2(nodes[0], &mut parameters)));
    parameters.gridDimX = 7;
    for _ in 0..3 {
        check(cuda!(cuGraphExecKernelNodeSetParams_v2(made, nodes[0], &parameters)));
        launch_graph(1);
    }
    // One node is switched off.
    check(cuda!(cuGraphNodeSetEnabled(made, nodes[1], 0)));
    launch_graph(2);
    // The whole graph becomes another.
    check(cuda!(cuGraphExecUpdate_v2(made, inner, null_mut())));
    launch_graph(4);
    check(cuda!(cuGraphExecDestroy(made)));

    // Another graph under the same handle.
    let mut again = null_mut();
    check(cuda!(cuGraphInstantiateWithFlags(&mut again, inner, 0)));
    assert_eq!(again, made, "the fake driver reuses handles");
    check(cuda!(cuGraphLaunch(again, stream)));
    check(cuda!(cuCtxSynchronize()));
}
