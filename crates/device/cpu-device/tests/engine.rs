//! The choice of the engine: a name that is none is said once, with those that are; and a session
//! tells which kernels were executed as machine code.

mod common;

use apex_trace::Session;
use apex_trace::control::{MappedControl, Settings};
use common::{Context, cu, ok, upload};
use std::ffi::c_void;
use test_process::Command;

const SUM: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry sum(.param .u64 data)
{
    .reg .b32 %r<2>; .reg .f32 %f<5>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [data];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.f32 %f1, [%rd3];
    ld.global.f32 %f2, [%rd3+256];
    add.f32 %f3, %f1, %f2;
    mul.f32 %f4, %f3, %f1;
    st.global.f32 [%rd3], %f4;
    ret;
}\0";

/// The program that the tests below run in a process of its own.
#[test]
#[ignore = "the tests beside it run it"]
fn child() {
    let _context = Context::new();
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    ok!(cuModuleLoadData(&mut module, SUM.as_ptr().cast()));
    ok!(cuModuleGetFunction(&mut function, module, c"sum".as_ptr()));
    let mut data = upload(&[0; 512]);
    let mut arguments = [(&raw mut data).cast::<c_void>()];
    let none = std::ptr::null_mut::<c_void>();
    let arguments = arguments.as_mut_ptr();
    ok!(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, none.cast(), arguments, none.cast()));
    ok!(cuCtxSynchronize());
}

/// The program, with an engine.
fn program(engine: &str) -> Command {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "child", "--ignored", "--nocapture"]).env("APEX_CPU_ENGINE", engine);
    program
}

/// What the program says.
fn said(engine: &str) -> String {
    let output = program(engine).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn an_unknown_engine_is_said_with_those_that_there_are() {
    let unknown = said("jit");
    let line = "APEX_CPU_ENGINE=jit names no engine; it may be auto, interpreted or compiled";
    assert_eq!(unknown.matches(line).count(), 1, "{unknown}");
    for engine in ["", "auto", "interpreted", "compiled"] {
        assert_eq!(said(engine), "");
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_session_has_the_kernels_that_became_machine_code() {
    let has_vectors =
        std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
    for (engine, is_compiled) in [("compiled", has_vectors), ("interpreted", false)] {
        let dir = tempfile::tempdir().unwrap();
        MappedControl::create(dir.path(), Settings::default()).unwrap();
        let mut program = program(engine);
        program.env("APEX_SESSION", dir.path()).env("APEX_CPU_COUNTS", "off");
        assert!(program.output().unwrap().status.success());
        let session = Session::open(dir.path()).unwrap();
        let found: Vec<&String> = session.counts.iter().flat_map(|counts| &counts.machine_code).collect();
        assert_eq!(found == ["sum"], is_compiled, "{engine}: {found:?}");
    }
}
