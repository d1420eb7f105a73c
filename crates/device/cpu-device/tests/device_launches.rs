//! Launches from device code (dynamic parallelism) and conditional nodes of graphs, with PTX that
//! nvcc made of `tests/rdc/device_runtime.cu`.

mod common;

use common::{Context, cu, download, fails, ok, stream, upload};
use cuda_abi::Plain;
use cuda_abi::types::*;
use std::ffi::{CString, c_void};

const CODE: &str = include_str!("rdc/device_runtime.ptx");

struct Code(CUmodule);

impl Code {
    fn load() -> Code {
        let (mut module, text) = (std::ptr::null_mut(), CString::new(CODE).unwrap());
        ok!(cuModuleLoadData(&mut module, text.as_ptr().cast()));
        Code(module)
    }

    fn function(&self, name: &str) -> CUfunction {
        let (mut function, name) = (std::ptr::null_mut(), CString::new(name).unwrap());
        ok!(cuModuleGetFunction(&mut function, self.0, name.as_ptr()));
        function
    }

    /// Launches a kernel with arguments of 4 and 8 bytes and waits for it.
    fn run(&self, name: &str, grid: u32, block: u32, arguments: &[&dyn Argument]) -> CUresult {
        let mut pointers: Vec<*mut c_void> = arguments.iter().map(|argument| argument.pointer()).collect();
        let (stream, extra) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (function, arguments) = (self.function(name), pointers.as_mut_ptr());
        ok!(cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, stream, arguments, extra));
        cu!(cuCtxSynchronize())
    }
}

trait Argument {
    fn pointer(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}

impl Argument for u32 {}
impl Argument for u64 {}

fn words(address: CUdeviceptr, count: usize) -> Vec<u32> {
    let bytes = download(address, 4 * count);
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

fn zeros(count: usize) -> CUdeviceptr {
    upload(&vec![0; 4 * count])
}

#[test]
fn children_end_before_their_parent_and_tails_come_last() {
    let _context = Context::new();
    let (code, sum) = (Code::load(), zeros(1));
    assert_eq!(code.run("parent", 2, 4, &[&sum, &3u32]), CUDA_SUCCESS);
    // In each of two blocks six threads add 1, 2, 3 and 4, and four grids add 100.
    let children = 2 * (6 * (1 + 2 + 3 + 4) + 4 * 100);
    assert_eq!(words(sum, 1), [3 * children]);
}

#[test]
fn a_tail_waits_for_the_whole_tree_below_its_parent() {
    let _context = Context::new();
    let (code, counts) = (Code::load(), zeros(2));
    assert_eq!(code.run("tree", 1, 1, &[&counts, &(counts + 4), &7u32]), CUDA_SUCCESS);
    assert_eq!(words(counts, 2), [(2 << 7) - 1, 0]);
}

#[test]
fn a_chain_of_launches_needs_no_stack() {
    let _context = Context::new();
    let (code, sum) = (Code::load(), zeros(1));
    assert_eq!(code.run("chain", 1, 1, &[&sum, &20_000u32]), CUDA_SUCCESS);
    assert_eq!(words(sum, 1), [20_000]);
}

#[test]
fn a_launch_that_is_refused_leaves_its_error_with_the_thread() {
    const INVALID_CONFIGURATION: u32 = 9;
    let _context = Context::new();
    let (code, errors) = (Code::load(), zeros(3));
    assert_eq!(code.run("refused", 1, 1, &[&errors]), CUDA_SUCCESS);
    assert_eq!(words(errors, 3), [INVALID_CONFIGURATION, 0, b'i'.into()]);
}

#[test]
fn copies_and_fills_are_done_in_order() {
    let _context = Context::new();
    let (code, memory) = (Code::load(), zeros(6));
    assert_eq!(code.run("copies", 1, 1, &[&memory]), CUDA_SUCCESS);
    assert_eq!(words(memory, 6), [0x2222_2222, 0x1111_1111, 0, 0, 0x1111_1111, 0x1111_1111]);
}

#[test]
fn a_fault_of_a_child_is_a_fault_of_the_launch() {
    let _context = Context::new();
    let (code, sum) = (Code::load(), zeros(1));
    assert_eq!(code.run("faulty_parent", 1, 1, &[&sum]), CUDA_ERROR_ILLEGAL_ADDRESS);
}

#[test]
fn what_the_device_runtime_does_not_do_ends_the_kernel_that_asks() {
    let _context = Context::new();
    let (code, sum) = (Code::load(), zeros(1));
    assert_eq!(code.run("waits", 1, 1, &[&sum]), CUDA_ERROR_NOT_SUPPORTED);
}

/// A graph with one conditional node, and what the program needs of both.
struct Conditional {
    graph: CUgraph,
    condition: CUgraphConditionalHandle,
    node: CUgraphNode,
    bodies: Vec<CUgraph>,
}

impl Conditional {
    fn new(kind: CUgraphConditionalNodeType, size: u32, default: Option<u32>) -> Conditional {
        let mut graph = std::ptr::null_mut();
        ok!(cuGraphCreate(&mut graph, 0));
        Conditional::inside(graph, kind, size, default)
    }

    fn inside(
        graph: CUgraph,
        kind: CUgraphConditionalNodeType,
        size: u32,
        default: Option<u32>,
    ) -> Conditional {
        let (mut node, mut condition) = (std::ptr::null_mut(), 0);
        let flags = if default.is_some() { CU_GRAPH_COND_ASSIGN_DEFAULT } else { 0 };
        let null = std::ptr::null_mut();
        ok!(cuGraphConditionalHandleCreate(&mut condition, graph, null, default.unwrap_or(0), flags));
        let mut params = CUgraphNodeParams { r#type: CU_GRAPH_NODE_TYPE_CONDITIONAL, ..Plain::zeroed() };
        params.anonymous.conditional =
            CUDA_CONDITIONAL_NODE_PARAMS { handle: condition, r#type: kind, size, ..Plain::zeroed() };
        ok!(cuGraphAddNode(&mut node, graph, std::ptr::null(), 0, &mut params));
        // SAFETY: the call has told as many handles.
        let bodies = unsafe {
            std::slice::from_raw_parts(params.anonymous.conditional.phGraph_out, size as usize).to_vec()
        };
        Conditional { graph, condition, node, bodies }
    }

    fn instantiate(&self) -> CUgraphExec {
        let mut exec = std::ptr::null_mut();
        ok!(cuGraphInstantiateWithFlags(&mut exec, self.graph, 0));
        exec
    }
}

fn launch(exec: CUgraphExec) {
    let stream = stream(CU_STREAM_NON_BLOCKING);
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuStreamSynchronize(stream));
    ok!(cuStreamDestroy_v2(stream));
}

/// Adds a kernel node of one thread.
fn kernel_node(graph: CUgraph, function: CUfunction, arguments: &[&dyn Argument]) {
    let mut pointers: Vec<*mut c_void> = arguments.iter().map(|argument| argument.pointer()).collect();
    let params = CUDA_KERNEL_NODE_PARAMS {
        func: function,
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        kernelParams: pointers.as_mut_ptr(),
        ..Plain::zeroed()
    };
    let mut node = std::ptr::null_mut();
    ok!(cuGraphAddKernelNode_v2(&mut node, graph, std::ptr::null(), 0, &params));
}

#[test]
fn if_executes_one_of_its_bodies() {
    let _context = Context::new();
    let (code, sum) = (Code::load(), zeros(1));
    let conditional = Conditional::new(CU_GRAPH_COND_TYPE_IF, 2, None);
    let mut kind = u32::MAX;
    ok!(cuGraphNodeGetType(conditional.node, &mut kind));
    assert_eq!(kind, CU_GRAPH_NODE_TYPE_CONDITIONAL);
    kernel_node(conditional.bodies[0], code.function("add"), &[&sum, &1u32]);
    kernel_node(conditional.bodies[1], code.function("add"), &[&sum, &10u32]);
    let exec = conditional.instantiate();
    // What is added after the graph was instantiated is not part of it.
    kernel_node(conditional.bodies[1], code.function("add"), &[&sum, &1000u32]);
    for value in [5u32, 0, 1] {
        assert_eq!(code.run("set", 1, 1, &[&conditional.condition, &value]), CUDA_SUCCESS);
        launch(exec);
    }
    assert_eq!(words(sum, 1), [12]);
    ok!(cuGraphExecDestroy(exec));
    ok!(cuGraphDestroy(conditional.graph));
}

#[test]
fn while_repeats_its_body_until_device_code_ends_it() {
    let _context = Context::new();
    let (code, left) = (Code::load(), zeros(2));
    let conditional = Conditional::new(CU_GRAPH_COND_TYPE_WHILE, 1, Some(1));
    kernel_node(conditional.bodies[0], code.function("add"), &[&(left + 4), &1u32]);
    let condition = conditional.condition;
    // Behind the other node: captured into the body.
    let stream = stream(CU_STREAM_NON_BLOCKING);
    let mut pointers = [condition.pointer(), left.pointer()];
    let global = CU_STREAM_CAPTURE_MODE_GLOBAL;
    let body = conditional.bodies[0];
    ok!(cuStreamBeginCaptureToGraph(stream, body, std::ptr::null(), std::ptr::null(), 0, global));
    let count_down = code.function("count_down");
    let (arguments, extra) = (pointers.as_mut_ptr(), std::ptr::null_mut());
    ok!(cuLaunchKernel(count_down, 1, 1, 1, 1, 1, 1, 0, stream, arguments, extra));
    ok!(cuStreamEndCapture(stream, std::ptr::null_mut()));
    let exec = conditional.instantiate();
    for (launches, length) in [(1, 10u32), (2, 25)] {
        ok!(cuMemsetD32_v2(left, length, 1));
        ok!(cuCtxSynchronize());
        launch(exec);
        assert_eq!(words(left, 2), [0, [10, 35][launches - 1]]);
    }
    ok!(cuGraphExecDestroy(exec));
}

#[test]
fn switch_executes_the_body_of_its_value_or_none() {
    let _context = Context::new();
    let (code, sum) = (Code::load(), zeros(1));
    let conditional = Conditional::new(CU_GRAPH_COND_TYPE_SWITCH, 3, Some(2));
    for (body, value) in conditional.bodies.iter().zip([1u32, 10, 100]) {
        kernel_node(*body, code.function("add"), &[&sum, &value]);
    }
    let mut copy = std::ptr::null_mut();
    ok!(cuGraphClone(&mut copy, conditional.graph));
    launch(conditional.instantiate());
    assert_eq!(words(sum, 1), [100], "the default decides, whatever was set before");
    let copied = Conditional { graph: copy, ..conditional };
    launch(copied.instantiate());
    assert_eq!(words(sum, 1), [200]);

    let without_default = Conditional::new(CU_GRAPH_COND_TYPE_SWITCH, 2, None);
    kernel_node(without_default.bodies[1], code.function("add"), &[&sum, &1000u32]);
    let exec = without_default.instantiate();
    for value in [1u32, 2, 7, 1] {
        assert_eq!(code.run("set", 1, 1, &[&without_default.condition, &value]), CUDA_SUCCESS);
        launch(exec);
    }
    assert_eq!(words(sum, 1), [2200]);
}

#[test]
fn conditional_nodes_nest() {
    let _context = Context::new();
    let (code, left) = (Code::load(), zeros(2));
    ok!(cuMemsetD32_v2(left, 4, 1));
    ok!(cuCtxSynchronize());
    let outer = Conditional::new(CU_GRAPH_COND_TYPE_WHILE, 1, Some(1));
    kernel_node(outer.bodies[0], code.function("count_down"), &[&outer.condition, &left]);
    let inner = Conditional::inside(outer.bodies[0], CU_GRAPH_COND_TYPE_IF, 1, Some(1));
    kernel_node(inner.bodies[0], code.function("add"), &[&(left + 4), &1u32]);
    kernel_node(inner.bodies[0], code.function("set"), &[&inner.condition, &0u32]);
    launch(outer.instantiate());
    assert_eq!(words(left, 2), [0, 4], "each execution of a body starts with the defaults of its conditions");
}

#[test]
fn what_conditions_cannot_do_is_refused() {
    let _context = Context::new();
    let code = Code::load();
    let conditional = Conditional::new(CU_GRAPH_COND_TYPE_IF, 1, None);
    let mut params = CUgraphNodeParams { r#type: CU_GRAPH_NODE_TYPE_CONDITIONAL, ..Plain::zeroed() };
    let mut node = std::ptr::null_mut();
    for (handle, kind, size) in [
        (conditional.condition + 1, CU_GRAPH_COND_TYPE_IF, 1),
        (conditional.condition, CU_GRAPH_COND_TYPE_IF, 3),
        (conditional.condition, CU_GRAPH_COND_TYPE_WHILE, 2),
        (conditional.condition, CU_GRAPH_COND_TYPE_SWITCH, 0),
        (conditional.condition, 9, 1),
    ] {
        params.anonymous.conditional =
            CUDA_CONDITIONAL_NODE_PARAMS { handle, r#type: kind, size, ..Plain::zeroed() };
        let null = std::ptr::null();
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode(&mut node, conditional.graph, null, 0, &mut params));
    }
    // Memory is allocated once in a launch; a body may be executed any number of times.
    let mut memory = CUDA_MEM_ALLOC_NODE_PARAMS { bytesize: 64, ..Plain::zeroed() };
    ok!(cuGraphAddMemAllocNode(&mut node, conditional.bodies[0], std::ptr::null(), 0, &mut memory));
    let mut exec = std::ptr::null_mut();
    fails!(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(&mut exec, conditional.graph, 0));
    // A handle that is none.
    assert_eq!(code.run("set", 1, 1, &[&12345u64, &1u32]), CUDA_ERROR_LAUNCH_FAILED);
}
