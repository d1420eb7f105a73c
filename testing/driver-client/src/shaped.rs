//! Launches in small blocks, which `apex tune` would launch in others: what is computed, what the
//! driver refuses, and what a graph's nodes say must not depend on it.

use crate::driver::{check, context, cuda, function, module, stream};
use cuda_abi::types::*;
use std::ffi::{CStr, c_void};
use std::mem::zeroed;
use std::ptr::null_mut;

/// `to[i] = 3 * from[i] + 1` for all `i` below `n`. The number in its name is its time in
/// nanoseconds on a driver that computes nothing.
pub const PTX: &CStr = c"
.version 8.0
.target sm_70
.address_size 64
.visible .entry step_20000(.param .u64 to, .param .u64 from, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .b64 %d<8>;
    ld.param.u64 %d1, [to];
    ld.param.u64 %d2, [from];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.s32 %p1, %r5, %r1;
    @%p1 bra DONE;
    cvta.to.global.u64 %d3, %d1;
    cvta.to.global.u64 %d4, %d2;
    mul.wide.s32 %d5, %r5, 4;
    add.s64 %d6, %d4, %d5;
    ld.global.u32 %r6, [%d6];
    mad.lo.s32 %r7, %r6, 3, 1;
    add.s64 %d7, %d3, %d5;
    st.global.u32 [%d7], %r7;
DONE:
    ret;
}
";

/// Threads of a block.
const BLOCK: u32 = 16;

/// The parameters of a launch.
#[derive(Clone, Copy)]
struct Given {
    to: CUdeviceptr,
    from: CUdeviceptr,
    n: u32,
}

impl Given {
    fn launch(mut self, function: CUfunction, grid: [u32; 2], stream: CUstream, extended: bool) -> CUresult {
        let mut pointers: [*mut c_void; 3] =
            [(&raw mut self.to).cast(), (&raw mut self.from).cast(), (&raw mut self.n).cast()];
        let (pointers, [x, y], none) = (pointers.as_mut_ptr(), grid, null_mut());
        if !extended {
            return cuda!(cuLaunchKernel(function, x, y, 1, BLOCK, 1, 1, 0, stream, pointers, none));
        }
        // SAFETY: zeros are a value of this structure.
        let mut config: CUlaunchConfig = unsafe { zeroed() };
        (config.gridDimX, config.gridDimY, config.gridDimZ) = (x, y, 1);
        (config.blockDimX, config.blockDimY, config.blockDimZ) = (BLOCK, 1, 1);
        config.hStream = stream;
        cuda!(cuLaunchKernelEx(&config, function, pointers, none))
    }
}

/// Launches `rounds` times with `n` values, back and forth between two buffers. Prints a checksum
/// where launches are computed.
pub fn rounds(rounds: usize, n: u32, is_computed: bool) {
    context();
    let (function, stream) = (function(module(PTX), c"step_20000"), stream(CU_STREAM_NON_BLOCKING));
    let (mut one, mut other) = (0, 0);
    for buffer in [&mut one, &mut other] {
        check(cuda!(cuMemAlloc_v2(buffer, 4 * n as usize)));
        if is_computed {
            check(cuda!(cuMemsetD32_v2(*buffer, 7, n as usize)));
        }
    }
    // The stream waits for no work of the default stream.
    check(cuda!(cuCtxSynchronize()));
    for round in 0..rounds {
        let (to, from) = if round % 2 == 0 { (one, other) } else { (other, one) };
        let given = Given { to, from, n };
        check(given.launch(function, [n.div_ceil(BLOCK), 1], stream, round % 3 == 2));
        if round % 50 == 49 {
            check(cuda!(cuStreamSynchronize(stream)));
        }
    }
    check(cuda!(cuStreamSynchronize(stream)));
    if is_computed {
        println!("{:016x}", checksum(one, n));
    }
}

fn checksum(from: CUdeviceptr, n: u32) -> u64 {
    let mut values = vec![0_u32; n as usize];
    check(cuda!(cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), from, 4 * n as usize)));
    values.iter().fold(0, |sum: u64, &value| sum.wrapping_mul(31).wrapping_add(value.into()))
}

/// Launches with `n` values, between each two of which something else happens in the stream that is
/// no launch, copy or set.
pub fn observed(n: u32) {
    context();
    let (function, stream) = (function(module(PTX), c"step_20000"), stream(CU_STREAM_NON_BLOCKING));
    let (mut one, mut other, mut flag) = (0, 0, 0);
    for buffer in [&mut one, &mut other] {
        check(cuda!(cuMemAlloc_v2(buffer, 4 * n as usize)));
        check(cuda!(cuMemsetD32_v2(*buffer, 7, n as usize)));
    }
    check(cuda!(cuMemAllocManaged(&mut flag, 64, CU_MEM_ATTACH_GLOBAL)));
    check(cuda!(cuCtxSynchronize()));
    // SAFETY: zeros are a value of this structure.
    let mut operation: CUstreamBatchMemOpParams = unsafe { zeroed() };
    operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    operation.writeValue.address = flag;
    let first = &raw mut operation;
    let looked_up = looked_up_write();
    let between: [&dyn Fn() -> CUresult; 8] = [
        &|| cuda!(cuStreamWriteValue32_v2(stream, flag, 1, 0)),
        &|| cuda!(cuStreamWaitValue32_v2(stream, flag, 1, CU_STREAM_WAIT_VALUE_EQ)),
        &|| cuda!(cuStreamWriteValue64_v2(stream, flag, 2, 0)),
        &|| cuda!(cuStreamWaitValue64_v2(stream, flag, 2, CU_STREAM_WAIT_VALUE_EQ)),
        &|| cuda!(cuStreamBatchMemOp_v2(stream, 1, first, 0)),
        &|| cuda!(cuStreamBatchMemOp(stream, 1, first, 0)),
        &|| cuda!(cuStreamAttachMemAsync(stream, flag, 0, CU_MEM_ATTACH_GLOBAL)),
        // SAFETY: the function has this signature.
        &|| unsafe { looked_up(stream, flag, 3, 0) },
    ];
    for (round, between) in between.iter().enumerate() {
        let (to, from) = if round % 2 == 0 { (one, other) } else { (other, one) };
        check(Given { to, from, n }.launch(function, [n.div_ceil(BLOCK), 1], stream, false));
        check(between());
    }
    // A driver may refuse these; the program meant something all the same.
    let last = Given { to: one, from: other, n };
    check(last.launch(function, [n.div_ceil(BLOCK), 1], stream, false));
    let _ = cuda!(cuSignalExternalSemaphoresAsync(null_mut(), null_mut(), 0, stream));
    check(Given { to: other, from: one, n }.launch(function, [n.div_ceil(BLOCK), 1], stream, false));
    check(cuda!(cuStreamSynchronize(stream)));
    println!("{:016x}", checksum(other, n));
}

/// `cuStreamWriteValue32` as the runtime looks it up.
fn looked_up_write() -> cuda_abi::signature::cuStreamWriteValue32_v2 {
    let (name, mut found, mut status) = (c"cuStreamWriteValue32", null_mut(), 0);
    check(cuda!(cuGetProcAddress_v2(name.as_ptr(), &mut found, 12_000, 0, &mut status)));
    // SAFETY: the driver gives a function of this signature for the name and version.
    unsafe { std::mem::transmute::<*mut c_void, cuda_abi::signature::cuStreamWriteValue32_v2>(found) }
}

/// Launches before and after the program maps memory, on a driver that computes nothing.
pub fn mapped() {
    context();
    let (function, stream) = (function(module(PTX), c"step_20000"), stream(CU_STREAM_NON_BLOCKING));
    let given = Given { to: 1 << 20, from: 1 << 21, n: 1000 };
    let launch = || check(given.launch(function, [63, 1], stream, false));
    (0..10).for_each(|_| launch());
    cuda!(cuMemMap(0, 0, 0, 0, 0));
    (0..10).for_each(|_| launch());
}

/// Launches that must be made as they are. Prints what comes of them.
pub fn cases() {
    const N: u32 = 1000;
    context();
    let (function, stream) = (function(module(PTX), c"step_20000"), stream(CU_STREAM_NON_BLOCKING));
    let mut buffer = 0;
    check(cuda!(cuMemAlloc_v2(&mut buffer, 8 * N as usize)));
    check(cuda!(cuMemsetD32_v2(buffer, 7, 2 * N as usize)));
    // The stream waits for no work of the default stream.
    check(cuda!(cuCtxSynchronize()));
    let far = Given { to: buffer, from: buffer + 4 * u64::from(N), n: N };
    let grid = [N.div_ceil(BLOCK), 1];
    let computed = |what: &str| {
        check(cuda!(cuStreamSynchronize(stream)));
        println!("{what}: {:016x}", checksum(buffer, 2 * N));
    };

    check(far.launch(function, grid, stream, false));
    computed("apart");
    check(Given { from: buffer, ..far }.launch(function, grid, stream, false));
    computed("in place");
    // The guard is beyond the threads: more threads would do more.
    check(far.launch(function, [60, 1], stream, false));
    computed("fewer threads than values");
    println!("a grid that is too high: {}", far.launch(function, [63, 70_000], stream, false));
    println!("an empty grid: {}", far.launch(function, [0, 1], stream, true));

    let mut graph = null_mut();
    check(cuda!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED)));
    check(far.launch(function, grid, stream, false));
    check(cuda!(cuStreamEndCapture(stream, &mut graph)));
    let (mut node, mut nodes) = (null_mut(), 1);
    check(cuda!(cuGraphGetNodes(graph, &mut node, &mut nodes)));
    // SAFETY: zeros are a value of this structure.
    let mut parameters: CUDA_KERNEL_NODE_PARAMS = unsafe { zeroed() };
    check(cuda!(cuGraphKernelNodeGetParams_v2(node, &mut parameters)));
    println!("a node: {} blocks of {}", parameters.gridDimX, parameters.blockDimX);
}
