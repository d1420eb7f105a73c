//! Defects that `APEX_CPU_CHECK=1` finds in programs. Each program runs in a process of its own,
//! which ends with a line about all defects.

mod common;

use common::{Context, cu, download, ok, upload};
use cuda_abi::types::*;
use std::ffi::{CString, c_void};
use test_process::Command;

const NONE: *mut c_void = std::ptr::null_mut();

/// The name of the program that a child process runs.
const PROGRAM: &str = "CHECKED_PROGRAM";

const KERNELS: &str = "
.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 status) cudaGetDevice (.param .b64 device);
.extern .shared .align 4 .b8 box[];
.const .align 4 .u32 bank[4];
.visible .entry padding(.param .u64 out) {
    .local .align 4 .b8 mine[8]; .reg .b32 %r<4>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    st.local.u8 [mine], 1;
    st.local.u32 [mine+4], 2;
    ld.local.u32 %r1, [mine];
    ld.local.u32 %r2, [mine+4];
    st.global.u32 [%rd1], %r1;
    st.global.u32 [%rd1+4], %r2;
    ret;
}
.visible .entry whole(.param .u64 out) {
    .local .align 4 .b8 mine[8]; .reg .b32 %r<4>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    ld.local.u32 %r1, [mine];
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry branches(.param .u64 out) {
    .reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    ld.global.u32 %r1, [%rd1];
    setp.eq.u32 %p1, %r1, 1;
    @%p1 bra away;
    st.global.u32 [%rd1+8], 1;
away:
    ret;
}
.visible .entry constant(.param .u64 out) {
    .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    mov.u64 %rd2, bank;
    cvta.const.u64 %rd2, %rd2;
    st.global.u32 [%rd2], 9;
    ld.global.u32 %r1, [%rd2];
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry behind(.param .u64 out) {
    .reg .b32 %r<4>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    ld.shared.u32 %r1, [box+8];
    st.global.u32 [%rd1], 7;
    ret;
}
.visible .entry synchronizes(.param .u64 out) {
    .reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [out];
    mov.b32 %r1, %envreg1;
    mov.b32 %r2, %envreg2;
    mov.b64 %rd2, {%r2, %r1};
    ld.volatile.u32 %r3, [%rd2+4];
    setp.ne.u32 %p1, %r3, 0;
    @%p1 bra away;
    atom.add.u32 %r3, [%rd2+4], 1;
    st.global.u32 [%rd1], 3;
away:
    ret;
}
.visible .entry asks(.param .u64 out) {
    .local .align 4 .b8 mine[8]; .reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [out];
    mov.u64 %rd2, mine;
    cvta.local.u64 %rd3, %rd2;
    {
    .param .b64 device; .param .b32 status;
    st.param.b64 [device], %rd3;
    call.uni (status), cudaGetDevice, (device);
    ld.param.b32 %r1, [status];
    }
    ld.local.u32 %r2, [%rd2];
    setp.ne.u32 %p1, %r2, 0;
    @%p1 bra away;
    st.global.u32 [%rd1], 4;
away:
    ret;
}
";

struct Programs {
    module: CUmodule,
    /// Device memory that nobody has written.
    fresh: CUdeviceptr,
    _context: Context,
}

impl Programs {
    fn new() -> Programs {
        let context = Context::new();
        let (text, mut module) = (CString::new(KERNELS).unwrap(), NONE.cast());
        ok!(cuModuleLoadData(&mut module, text.as_ptr().cast()));
        let mut fresh = 0;
        ok!(cuMemAlloc_v2(&mut fresh, 64));
        Programs { module, fresh, _context: context }
    }

    fn launch(&self, kernel: &str, out: CUdeviceptr, shared: u32, cooperative: bool) {
        let (name, mut function) = (CString::new(kernel).unwrap(), NONE.cast());
        ok!(cuModuleGetFunction(&mut function, self.module, name.as_ptr()));
        let mut out = out;
        let mut arguments = [(&raw mut out).cast::<c_void>()];
        let (none, arguments) = (NONE.cast(), arguments.as_mut_ptr());
        if cooperative {
            ok!(cuLaunchCooperativeKernel(function, 1, 1, 1, 1, 1, 1, shared, none, arguments));
        } else {
            ok!(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, shared, none, arguments, NONE.cast()));
        }
        ok!(cuCtxSynchronize());
    }

    fn run(&self, program: &str) {
        match program {
            "padding" => {
                self.launch("padding", self.fresh, 0, false);
                download(self.fresh, 8);
            }
            "padding over zeros" => {
                let zeros = upload(&[0; 64]);
                self.launch("padding", zeros, 0, false);
                download(zeros, 64);
            }
            "padding that decides" => {
                self.launch("padding", self.fresh, 0, false);
                self.launch("branches", self.fresh, 0, false);
            }
            "whole word" | "unread" | "written before it is read" | "copied and read" => {
                self.launch("whole", self.fresh, 0, false);
                match program {
                    "whole word" => drop(download(self.fresh, 4)),
                    "unread" => drop(download(self.fresh + 4, 8)),
                    "written before it is read" => {
                        ok!(cuMemsetD32_v2(self.fresh, 5, 1));
                        download(self.fresh, 8);
                    }
                    _ => {
                        let copy = upload(&[0; 64]);
                        ok!(cuMemcpyDtoD_v2(copy + 16, self.fresh, 8));
                        ok!(cuMemFree_v2(self.fresh));
                        download(copy, 64);
                    }
                }
            }
            "whole word for the host" => {
                let mut pinned = NONE;
                ok!(cuMemAllocHost_v2(&mut pinned, 64));
                self.launch("whole", pinned as CUdeviceptr, 0, false);
            }
            "constant" => {
                self.launch("constant", self.fresh, 0, false);
                assert_eq!(download(self.fresh, 4), [9, 0, 0, 0]);
            }
            "behind" => {
                self.launch("behind", self.fresh, 8, false);
                assert_eq!(download(self.fresh, 4), [7, 0, 0, 0]);
            }
            "synchronizes" => {
                self.launch("synchronizes", self.fresh, 0, true);
                assert_eq!(download(self.fresh, 4), [3, 0, 0, 0]);
            }
            "asks" => {
                self.launch("asks", self.fresh, 0, false);
                assert_eq!(download(self.fresh, 4), [4, 0, 0, 0]);
            }
            _ => panic!("no program {program}"),
        }
    }
}

#[test]
fn child() {
    if let Ok(program) = std::env::var(PROGRAM) {
        Programs::new().run(&program);
    }
}

/// Returns what the device prints about a program on standard error.
fn told(program: &str, checks: &str) -> String {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(PROGRAM, program)
        .env("APEX_CPU_CHECK", checks)
        .env_remove("APEX_SESSION")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&child.stderr).into_owned();
    assert!(child.status.success(), "{program}: {told}");
    told
}

#[test]
fn sound_programs_pass() {
    for program in
        ["padding", "padding over zeros", "unread", "written before it is read", "synchronizes", "asks"]
    {
        let told = told(program, "1");
        assert!(told.contains("check: no defects found"), "{program}: {told}");
    }
}

#[test]
fn defects_are_told_once_they_matter() {
    for (program, kind, place) in [
        ("padding that decides", "uninitialized-read in kernel branches", "at bra"),
        ("whole word", "uninitialized-read in kernel whole", "at st.global.u32"),
        ("copied and read", "uninitialized-read in kernel whole", "at st.global.u32"),
        ("whole word for the host", "uninitialized-read in kernel whole", "at st.global.u32"),
        ("constant", "constant-write in kernel constant", "the variable `bank` of 16 bytes"),
        ("behind", "shared-out-of-bounds in kernel behind", "beyond the 8 of the launch"),
    ] {
        let told = told(program, "1");
        for part in [kind, place, "check: 1 defect, met 1 time"] {
            assert!(told.contains(part), "{program}: {part}: {told}");
        }
    }
    // Without the check all of them are as on a GPU.
    for program in ["constant", "behind", "whole word"] {
        assert_eq!(told(program, "").matches("apex:").count(), 0, "{program}");
    }
}
