//! Kernels that never end: the user can end the program, and a limit can end the kernel.

mod common;

use common::{Context, cu, fails, ok};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use test_process::{Child, Command};

const ENDLESS: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry endless()
{
again:
    bra again;
}\0";

/// The program that the tests below run in a process of its own.
#[test]
#[ignore = "it never ends: the tests beside it run it"]
fn child() {
    let _context = Context::new();
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    ok!(cuModuleLoadData(&mut module, ENDLESS.as_ptr().cast()));
    ok!(cuModuleGetFunction(&mut function, module, c"endless".as_ptr()));
    let none = std::ptr::null_mut::<std::ffi::c_void>();
    ok!(cuLaunchKernel(function, 2, 1, 1, 64, 1, 1, 0, none.cast(), none.cast(), none.cast()));
    println!("launched");
    fails!(CUDA_ERROR_LAUNCH_TIMEOUT, cuCtxSynchronize());
    fails!(CUDA_ERROR_LAUNCH_TIMEOUT, cuMemAlloc_v2(&mut 0, 16));
    println!("stopped");
}

fn start(timeout: Option<&str>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--ignored", "--nocapture"]).env_remove("APEX_CPU_TIMEOUT");
    command.envs(timeout.map(|timeout| ("APEX_CPU_TIMEOUT", timeout)));
    // A shell lets its background jobs ignore interrupts, and what is ignored is inherited.
    let heed_interrupts = || {
        // SAFETY: a call with valid arguments, and one that may be made between fork and exec.
        match unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) } {
            libc::SIG_ERR => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // SAFETY: see there.
    unsafe { command.pre_exec(heed_interrupts) };
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn an_interrupt_ends_the_program_at_once() {
    let mut child = start(None);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("launched")));
    // SAFETY: the process is this test's child.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGINT));
}

#[test]
fn a_limit_ends_the_kernel_and_names_it() {
    let mut child = start(Some("0.3"));
    let (mut output, mut errors) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(child.wait().unwrap().success(), "{output}{errors}");
    assert!(output.contains("stopped"), "{output}");
    let told = ["APEX_CPU_TIMEOUT", "in kernel endless", "at bra (PTX line 8)", "CUDA_ERROR_LAUNCH_TIMEOUT"];
    assert!(told.iter().all(|part| errors.contains(part)), "{errors}");
}
