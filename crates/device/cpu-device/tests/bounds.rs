//! Sizes that programs choose: local memory, stacks, recursion, variables. Too much of it is an
//! error code, and the process goes on.

mod common;

use common::{Context, cu, fails, ok};
use cuda_abi::types::*;
use std::ffi::{CStr, CString, c_void};
use std::io::Read;
use std::process::Stdio;
use test_process::Command;

const HEADER: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

/// Functions that call themselves for ever: without a frame, with a frame, through a pointer, two
/// in turn, and one whose lanes part at each call.
const RECURSIONS: &str = "
.visible .func bare() { call bare; ret; }
.visible .entry frameless() { call bare; ret; }

.visible .func (.param .b32 result) deep(.param .b32 depth)
{
    .local .b8 frame[64];
    .reg .b32 %r<3>;
    ld.param.u32 %r0, [depth];
    add.u32 %r1, %r0, 1;
    st.local.u32 [frame], %r1;
    { .param .b32 in; .param .b32 out; st.param.b32 [in], %r1; call (out), deep, (in); ld.param.b32 %r2, [out]; }
    st.param.b32 [result], %r2;
    ret;
}
.visible .entry framed()
{
    .reg .b32 %r<2>;
    mov.u32 %r0, 0;
    { .param .b32 in; .param .b32 out; st.param.b32 [in], %r0; call (out), deep, (in); ld.param.b32 %r1, [out]; }
    ret;
}

.visible .func pointed()
{
    .reg .b64 %f;
    mov.u64 %f, pointed;
    { prototype: .callprototype _ (); call %f, prototype; }
    ret;
}
.visible .entry indirect() { call pointed; ret; }

.visible .func ping();
.visible .func pong() { call ping; ret; }
.visible .func ping() { call pong; ret; }
.visible .entry mutual() { call ping; ret; }

.visible .func parting()
{
    .reg .b32 %r<2>;
    .reg .pred %p;
    mov.u32 %r0, %laneid;
    and.b32 %r1, %r0, 1;
    setp.eq.u32 %p, %r1, 0;
    @%p call parting;
    call parting;
    ret;
}
.visible .entry diverging() { call parting; ret; }

.visible .entry fine() { ret; }
";

fn load(text: &str) -> CUmodule {
    let image = CString::new(format!("{HEADER}{text}")).unwrap();
    let mut module = std::ptr::null_mut();
    ok!(cuModuleLoadData(&mut module, image.as_ptr().cast()));
    module
}

fn launch(module: CUmodule, kernel: &CStr, blocks: u32, threads: u32) -> CUresult {
    let mut function = std::ptr::null_mut();
    ok!(cuModuleGetFunction(&mut function, module, kernel.as_ptr()));
    let none = std::ptr::null_mut::<c_void>();
    cu!(cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, none.cast(), none.cast(), none.cast()))
}

const RECURSIVE: [&CStr; 5] = [c"frameless", c"framed", c"indirect", c"mutual", c"diverging"];

#[test]
fn endless_recursion_is_a_stack_error_and_nothing_else() {
    for stack in [1 << 10, 64 << 10] {
        for kernel in RECURSIVE {
            let _context = Context::new();
            ok!(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, stack));
            let module = load(RECURSIONS);
            common::assert_code("the launch", launch(module, kernel, 2, 64), CUDA_SUCCESS);
            let code = cu!(cuCtxSynchronize());
            assert_eq!(result_name(code), Some("CUDA_ERROR_HARDWARE_STACK_ERROR"), "{kernel:?} {stack}");
        }
    }
}

#[test]
fn recursion_goes_as_deep_as_the_stack_is_large() {
    // Counts down in a register that the callee finds in a variable: no frame, so eight bytes are
    // what a call takes.
    let text = "
        .global .u32 left;
        .visible .func step()
        {
            .reg .b32 %r<2>;
            .reg .pred %p;
            ld.global.u32 %r0, [left];
            setp.eq.u32 %p, %r0, 0;
            @%p ret;
            sub.u32 %r1, %r0, 1;
            st.global.u32 [left], %r1;
            call step;
            ret;
        }
        .visible .entry descend() { call step; ret; }";
    for (stack, depth, expected) in [
        (1024, 100, CUDA_SUCCESS),
        (1024, 200, CUDA_ERROR_HARDWARE_STACK_ERROR),
        (4096, 200, CUDA_SUCCESS),
        (4 << 20, 100_000, CUDA_SUCCESS),
    ] {
        let _context = Context::new();
        ok!(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, stack));
        let module = load(text);
        let (mut left, mut bytes) = (0, 0);
        ok!(cuModuleGetGlobal_v2(&mut left, &mut bytes, module, c"left".as_ptr()));
        ok!(cuMemsetD32_v2(left, depth, 1));
        assert_eq!(launch(module, c"descend", 1, 1), CUDA_SUCCESS);
        common::assert_code(&format!("{stack} {depth}"), cu!(cuCtxSynchronize()), expected);
    }
}

#[test]
fn more_local_memory_than_there_is_is_out_of_memory_at_the_launch() {
    let _context = Context::new();
    let text = |bytes: u64| {
        format!(
            "
            .visible .entry large()
            {{
                .local .b8 frame[{bytes}];
                .reg .b32 %r;
                ld.local.u8 %r, [frame+5];
                st.local.u8 [frame+7], %r;
                ret;
            }}
            .visible .entry fine() {{ ret; }}"
        )
    };
    for bytes in [4 << 30, (4 << 30) - 1, 1 << 40] {
        let module = load(&text(bytes));
        for (blocks, threads) in [(1, 1024), (64, 1024), (100_000, 1024)] {
            let code = launch(module, c"large", blocks, threads);
            common::assert_code(&format!("{bytes} bytes"), code, CUDA_ERROR_OUT_OF_MEMORY);
        }
        // Nothing has happened to the context.
        common::assert_code("the launch", launch(module, c"fine", 1, 32), CUDA_SUCCESS);
        ok!(cuCtxSynchronize());
    }
    let module = load(&text(64 << 10));
    common::assert_code("64 KiB", launch(module, c"large", 4, 1024), CUDA_SUCCESS);
    ok!(cuCtxSynchronize());
}

#[test]
fn a_stack_limit_beyond_the_memory_is_out_of_memory_at_the_launch() {
    let _context = Context::new();
    let module = load(RECURSIONS);
    for stack in [4 << 30, 1 << 40, usize::MAX] {
        ok!(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, stack));
        for kernel in RECURSIVE {
            let code = launch(module, kernel, 2, 1024);
            common::assert_code(&format!("{kernel:?} {stack}"), code, CUDA_ERROR_OUT_OF_MEMORY);
        }
        // What does not recurse needs no stack.
        common::assert_code("the launch", launch(module, c"fine", 2, 1024), CUDA_SUCCESS);
        ok!(cuCtxSynchronize());
    }
}

#[test]
fn variables_and_parameters_of_any_size_are_refused_by_code() {
    let _context = Context::new();
    let refused = |text: &str, expected: CUresult| {
        let image = CString::new(format!("{HEADER}{text}")).unwrap();
        let mut module = std::ptr::null_mut();
        let code = cu!(cuModuleLoadData(&mut module, image.as_ptr().cast()));
        common::assert_code(text, code, expected);
    };
    for bytes in [(1u64 << 40) + 1, 1 << 62, i64::MAX.cast_unsigned(), u64::MAX] {
        refused(&format!(".global .align 1 .b8 x[{bytes}];"), CUDA_ERROR_INVALID_PTX);
        let mut address = 0;
        fails!(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&mut address, bytes as usize));
    }
    for bytes in [1u64 << 39, 1 << 40] {
        refused(&format!(".global .align 1 .b8 x[{bytes}];"), CUDA_ERROR_OUT_OF_MEMORY);
        refused(&format!(".global .align 1 .b8 x[{bytes}] = {{1, 2, 3}};"), CUDA_ERROR_OUT_OF_MEMORY);
        // A module has 64 KiB of constants at most, whatever the device's memory: ptxas says so,
        // too.
        refused(&format!(".const .align 1 .b8 x[{bytes}]; .const .b8 y[{bytes}];"), CUDA_ERROR_INVALID_PTX);
        refused(
            &format!(".visible .entry k(.param .align 1 .b8 x[{bytes}]) {{ ret; }}"),
            CUDA_ERROR_INVALID_PTX,
        );
        // No device has a block with so much: ptxas refuses it, too.
        let text = format!(
            ".shared .align 1 .b8 x[{bytes}]; .shared .align 16 .b8 y[{bytes}];
            .visible .entry k() {{ .reg .b32 %r; ld.shared.u8 %r, [x]; ld.shared.u8 %r, [y]; ret; }}"
        );
        refused(&text, CUDA_ERROR_INVALID_PTX);
    }
}

/// Kernels that a limit on time has to stop; run in a process of its own.
const ENDLESS: &str = "
.global .u32 never;
.visible .func (.param .b32 result) fork(.param .b32 depth)
{
    .reg .b32 %r<4>;
    .reg .pred %p;
    ld.param.u32 %r0, [depth];
    setp.eq.u32 %p, %r0, 0;
    @%p ret;
    sub.u32 %r1, %r0, 1;
    { .param .b32 in; .param .b32 out; st.param.b32 [in], %r1; call (out), fork, (in); ld.param.b32 %r2, [out]; }
    { .param .b32 in; .param .b32 out; st.param.b32 [in], %r1; call (out), fork, (in); ld.param.b32 %r3, [out]; }
    ret;
}
.visible .entry recursion()
{
    .reg .b32 %r<2>;
    mov.u32 %r0, 60;
    { .param .b32 in; .param .b32 out; st.param.b32 [in], %r0; call (out), fork, (in); ld.param.b32 %r1, [out]; }
    ret;
}
.visible .func loops() { again: bra again; }
.visible .entry in_a_callee() { call loops; ret; }
.visible .entry through_a_pointer()
{
    .reg .b64 %f;
    mov.u64 %f, loops;
    { prototype: .callprototype _ (); call %f, prototype; }
    ret;
}
.visible .entry waiting_for_memory()
{
    .reg .b32 %r;
    .reg .pred %p;
    again: ld.volatile.global.u32 %r, [never];
    setp.eq.u32 %p, %r, 0;
    @%p bra again;
    ret;
}
.visible .entry sleeping() { again: nanosleep.u32 1000000; bra again; }
.visible .entry at_barriers() { again: bar.sync 0; bra again; }
.visible .entry parted_at_barriers()
{
    .reg .b32 %r;
    .reg .pred %p;
    mov.u32 %r, %tid.x;
    setp.lt.u32 %p, %r, 32;
    @%p bra again;
    bar.sync 1, 64;
    ret;
    again: bra again;
}
.extern .func (.param .b64 address) malloc(.param .b64 bytes);
.visible .entry allocating()
{
    .reg .b64 %rd<2>;
    mov.u64 %rd0, 16;
    again:
    { .param .b64 in; .param .b64 out; st.param.b64 [in], %rd0; call (out), malloc, (in); ld.param.b64 %rd1, [out]; }
    bra again;
}
.extern .func (.param .b32 count) vprintf(.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 text[2] = {120, 0};
.visible .entry printing()
{
    .reg .b64 %rd<3>;
    .reg .b32 %r;
    mov.u64 %rd0, text;
    cvta.global.u64 %rd1, %rd0;
    mov.u64 %rd2, 0;
    again:
    { .param .b64 a; .param .b64 b; .param .b32 out; st.param.b64 [a], %rd1; st.param.b64 [b], %rd2;
      call (out), vprintf, (a, b); ld.param.b32 %r, [out]; }
    bra again;
}
";

const STOPPED: [&CStr; 9] = [
    c"recursion",
    c"in_a_callee",
    c"through_a_pointer",
    c"waiting_for_memory",
    c"sleeping",
    c"at_barriers",
    c"parted_at_barriers",
    c"allocating",
    c"printing",
];

/// This test's process again, for one of its ignored tests.
fn child(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]).env_remove("APEX_CPU_TIMEOUT");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
#[ignore = "the test below runs it, with a limit"]
fn child_with_a_limit() {
    for kernel in STOPPED {
        let _context = Context::new();
        // Deep enough for the recursion, which has nothing against it but time.
        ok!(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 16 << 10));
        let module = load(ENDLESS);
        common::assert_code("the launch", launch(module, kernel, 3, 64), CUDA_SUCCESS);
        let code = cu!(cuCtxSynchronize());
        println!();
        common::assert_code(&format!("{kernel:?}"), code, CUDA_ERROR_LAUNCH_TIMEOUT);
    }
    println!("all stopped");
}

#[test]
fn a_limit_on_time_stops_everything_that_kernels_can_do_for_ever() {
    let mut command = child("child_with_a_limit");
    let mut running = command.env("APEX_CPU_TIMEOUT", "0.1").spawn().unwrap();
    let mut output = Vec::new();
    running.stdout.take().unwrap().read_to_end(&mut output).unwrap();
    let output = String::from_utf8_lossy(&output);
    let mut errors = String::new();
    running.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(running.wait().unwrap().success() && output.contains("all stopped"), "{errors}");
}

/// Limits a process before it begins.
fn limited(command: &mut Command, resource: libc::__rlimit_resource_t, most: u64) -> &mut Command {
    let limit = move || {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: the structure is valid, and the call may be made between fork and exec.
        match unsafe { libc::setrlimit(resource, &limit) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: see there.
    unsafe { command.pre_exec(limit) }
}

#[test]
#[ignore = "the test below runs it, with little address space"]
fn child_with_little_address_space() {
    let context = Context::new();
    let module = load(
        ".visible .entry large()
        {
            .local .b8 frame[2097152];
            .reg .b32 %r;
            ld.local.u8 %r, [frame];
            st.local.u8 [frame+7], %r;
            ret;
        }
        .visible .entry fine() { ret; }",
    );
    common::assert_code("the launch", launch(module, c"large", 8, 1024), CUDA_ERROR_OUT_OF_MEMORY);
    common::assert_code("the launch", launch(module, c"fine", 8, 1024), CUDA_SUCCESS);
    ok!(cuCtxSynchronize());
    let mut address = 0;
    fails!(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&mut address, 4 << 30));
    ok!(cuMemAlloc_v2(&mut address, 4096));
    drop(context);
    println!("done");
}

#[test]
fn little_address_space_is_out_of_memory() {
    let mut command = child("child_with_little_address_space");
    let output = limited(&mut command, libc::RLIMIT_AS, 1 << 30).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("done"), "{}", String::from_utf8_lossy(&output.stderr));
}
