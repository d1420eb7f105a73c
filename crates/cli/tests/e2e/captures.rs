//! Runs that capture nothing say so, with the likely cause.

use crate::common::{APEX, Sandbox, output, program, text};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Returns the message of `apex run` about a command that captures nothing.
fn complaint(sandbox: &Sandbox, command: &[&str]) -> String {
    let mut apex = sandbox.apex(&["run", "--device", "cpu", "-o", "s", "--"]);
    let message = text(&output(apex.args(command), 0).stderr);
    assert!(message.contains("NOTHING WAS CAPTURED"), "{message}");
    assert!(message.contains("no session is kept") && !sandbox.path("s").exists(), "{message}");
    message
}

/// Returns the complaint about a command that lives for some seconds and is `seen` meanwhile. A
/// busy machine looks late: then the command lives longer.
fn complaint_once_seen<'c>(
    sandbox: &Sandbox,
    command: impl Fn(&'c str) -> Vec<String>,
    seen: &str,
) -> String {
    let mut said = String::new();
    for seconds in ["0.3", "2", "10", "60"] {
        let words = command(seconds);
        said = complaint(sandbox, &words.iter().map(String::as_str).collect::<Vec<_>>());
        if said.contains(seen) {
            break;
        }
    }
    said
}

#[test]
fn a_program_without_cuda_is_named() {
    let sandbox = Sandbox::new();
    assert!(complaint(&sandbox, &["true"]).contains("no CUDA call"));
    let seen = "seen with libapex.so: sleep";
    let said = complaint_once_seen(&sandbox, |seconds| ["sleep", seconds].map(String::from).into(), seen);
    assert!(said.contains(seen), "{said}");
}

#[test]
fn a_stripped_environment_is_named() {
    let sandbox = Sandbox::new();
    let program = program();
    let program = program.to_str().unwrap();
    assert!(complaint(&sandbox, &["env", "-i", "sleep", "0.01"]).contains("env -i apex run"));
    let command = |seconds: &str| {
        let script = format!("env -u LD_PRELOAD sleep {seconds}; test -x {program}");
        ["sh", "-c", &script].map(String::from).into()
    };
    let message = complaint_once_seen(&sandbox, command, "sleep (pid");
    assert!(message.contains("sleep (pid") && message.contains("ran without libapex.so"), "{message}");
    assert!(message.contains("LD_PRELOAD is missing"), "{message}");
}

/// The observations of short-lived processes differ from run to run; the cause does not.
#[test]
fn a_program_that_fails_early_is_the_cause_in_each_run() {
    let sandbox = Sandbox::new();
    let mut said = std::collections::BTreeSet::new();
    for _ in 0..5 {
        let script =
            "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 0.01; done; exit 3";
        let mut apex = sandbox.apex(&["run", "--no-machine", "--device", "cpu", "-o", "s", "--"]);
        let message = text(&output(apex.args(["sh", "-c", script]), 3).stderr);
        assert!(!sandbox.path("s").exists());
        said.insert(message);
    }
    assert_eq!(said.len(), 1, "{said:?}");
    let message = said.first().unwrap();
    assert!(message.contains("likely cause: the program failed with exit status 3 before"), "{message}");
    assert_eq!(message.matches("likely cause").count(), 1, "{message}");
}

/// A program that exits with 0 and has no dynamic linker.
fn static_program(path: &Path) {
    let mut elf = vec![0u8; 64 + 56];
    elf[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\0");
    let entry = 0x40_0000u64 + 120;
    // Executable, x86-64, version 1; then entry point and where the program header lies.
    elf[16..24].copy_from_slice(&[2, 0, 62, 0, 1, 0, 0, 0]);
    elf[24..32].copy_from_slice(&entry.to_le_bytes());
    elf[32..40].copy_from_slice(&64u64.to_le_bytes());
    elf[52..58].copy_from_slice(&[64, 0, 56, 0, 1, 0]);
    // mov eax, 60 (exit); xor edi, edi; syscall
    elf.extend([0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05]);
    let length = elf.len() as u64;
    // Load all of it, readable and executable.
    let segment =
        [1 | 5 << 32, 0, 0x40_0000, 0x40_0000, length, length, 0x1000].map(u64::to_le_bytes).concat();
    elf[64..120].copy_from_slice(&segment);
    std::fs::write(path, elf).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_static_program_is_named() {
    let sandbox = Sandbox::new();
    static_program(&sandbox.path("static"));
    assert!(complaint(&sandbox, &["./static"]).contains("statically linked"));
    std::fs::write(sandbox.path("script"), format!("#!{}\n", sandbox.path("static").display())).unwrap();
    std::fs::set_permissions(sandbox.path("script"), std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(complaint(&sandbox, &["./script"]).contains("statically linked"));
}

/// A program in C that looks for the driver's file and opens it by its path; `None`, said, without a
/// compiler.
fn looking_program(sandbox: &Sandbox) -> Option<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/looks_for_driver.c");
    let made = sandbox.command("cc").args(["-w", "-o", "looks"]).arg(source).arg("-ldl").output();
    if !made.is_ok_and(|output| output.status.success()) {
        test_skip::impossible_here("cc is not installed");
        return None;
    }
    sandbox.path("looks").to_str().map(String::from)
}

#[test]
fn a_program_that_looks_for_the_drivers_file_gets_the_cpu_device_and_is_recorded() {
    let sandbox = Sandbox::new();
    let Some(program) = looking_program(&sandbox) else { return };
    let run = |folders: &str| {
        let mut apex = sandbox.apex(&["run", "--device", "cpu", "-o", "s", "--", &program]);
        let output = output(apex.env("LD_LIBRARY_PATH", folders), 0);
        assert!(text(&output.stdout).ends_with("libcuda.so.1: 0\n"), "{output:?}");
        assert_eq!(sandbox.launches("s"), 7);
        std::fs::remove_dir_all(sandbox.path("s")).unwrap();
    };
    // Nobody has made a file for it; and a folder as docs/cpu-device.md makes it.
    run("");
    std::fs::create_dir(sandbox.path("cpu")).unwrap();
    let device = Path::new(APEX).with_file_name("deps").join("libapex_cpu_device.so");
    std::os::unix::fs::symlink(device, sandbox.path("cpu/libcuda.so.1")).unwrap();
    run(sandbox.path("cpu").to_str().unwrap());
}

/// A program linked to musl that executes its arguments; `None`, said, where none can be made.
fn musl_program(sandbox: &Sandbox) -> Option<String> {
    let source = sandbox.path("musl.c");
    let text = "#include <stdio.h>\n#include <unistd.h>\nint main(int count, char** words) {\n  puts(\"runs\");\n  \
        fflush(stdout);\n  return count > 1 ? execv(words[1], words + 1) : 0;\n}\n";
    std::fs::write(&source, text).unwrap();
    let made = sandbox.command("musl-gcc").args(["-o", "musl"]).arg(source).output();
    if !made.is_ok_and(|output| output.status.success()) {
        test_skip::impossible_here("musl-gcc (musl-tools) is not installed");
        return None;
    }
    sandbox.path("musl").to_str().map(String::from)
}

#[test]
fn a_program_linked_to_musl_runs_unrecorded_and_its_children_are_recorded() {
    let sandbox = Sandbox::new();
    let Some(musl) = musl_program(&sandbox) else { return };
    let said = complaint(&sandbox, &[&musl]);
    assert!(said.contains("musl's dynamic linker"), "{said}");
    let run = |command: &[&str]| {
        let mut apex = sandbox.apex(&["run", "--device", "cpu", "-o", "s", "--"]);
        let output = output(apex.args(command), 0);
        assert!(text(&output.stdout).starts_with("runs\n"), "{output:?}");
        assert!(!text(&output.stderr).contains("shared library"), "{output:?}");
    };
    let program = program();
    run(&[&musl, program.to_str().unwrap(), "launch", "3"]);
    assert_eq!(sandbox.launches("s"), 3, "the child of a program linked to musl");
    std::fs::remove_dir_all(sandbox.path("s")).unwrap();
    // A child linked to musl, of a shell linked to glibc.
    run(&["sh", "-c", &format!("{musl} && {} launch 2", program.display())]);
    assert_eq!(sandbox.launches("s"), 2);
}

#[test]
fn require_capture_fails_where_the_program_succeeded() {
    let sandbox = Sandbox::new();
    let run = |command: &[&str], code| {
        let mut apex = sandbox.apex(&["run", "--require-capture", "--device", "cpu", "-o", "s", "--"]);
        output(apex.args(command), code);
        let is_kept = sandbox.path("s").exists();
        let _ = std::fs::remove_dir_all(sandbox.path("s"));
        is_kept
    };
    assert!(!run(&["true"], 124));
    assert!(!run(&["sh", "-c", "exit 3"], 3));
    assert!(run(&[program().to_str().unwrap(), "launch", "1"], 0));
}

/// A folder that was there stays, and what was in the way of recording is kept with its word.
#[test]
fn a_run_without_a_launch_leaves_nothing_behind() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("mine")).unwrap();
    output(&mut sandbox.apex(&["run", "--device", "cpu", "-o", "mine", "--name", "x", "--", "true"]), 0);
    output(&mut sandbox.apex(&["run", "--device", "cpu", "-q", "--", "true"]), 0);
    let names = |folder| std::fs::read_dir(sandbox.path(folder)).unwrap().count();
    assert_eq!((names(""), names("mine")), (1, 0));
    let script = format!("ulimit -f 600; exec {} launch 20", program().display());
    output(&mut sandbox.apex(&["run", "--device", "cpu", "-o", "lost", "--", "sh", "-c", &script]), 0);
    assert!(sandbox.path("lost/session.json").exists(), "lost records are something to report");
}

#[test]
fn recording_that_was_disabled_is_named() {
    let sandbox = Sandbox::new();
    let output = output(sandbox.record(&[], &["launch", "7"]).env("APEX_DISABLE", "1"), 0);
    assert!(text(&output.stderr).contains("APEX_DISABLE=1"), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "launched 7\n");
}

#[test]
fn a_program_that_opens_cuda_and_launches_nothing_is_no_error() {
    let sandbox = Sandbox::new();
    let output = sandbox.recorded(&["--require-capture"], &["launch", "0"]);
    assert!(text(&output.stderr).contains("0 launches"), "{}", text(&output.stderr));
}

#[test]
fn a_nested_run_joins_the_outer_session() {
    let sandbox = Sandbox::new();
    let program = program();
    let program = program.to_str().unwrap();
    let script = format!("{program} launch 10 && {APEX} run -- {program} launch 20 exit 9");
    let mut command = sandbox.apex(&["run", "--device", "cpu", "--", "sh", "-c", &script]);
    let output = output(command.env("APEX_OUTPUT", "outer"), 9);
    assert!(text(&output.stderr).contains("records into the session"), "{}", text(&output.stderr));
    assert_eq!(sandbox.launches("outer"), 30);
    assert_eq!(std::fs::read_dir(sandbox.path("")).unwrap().count(), 1);
}

#[test]
fn a_nested_run_with_its_own_output_has_its_own_session() {
    let sandbox = Sandbox::new();
    let program = program();
    let program = program.to_str().unwrap();
    let script = format!("{program} launch 10 && {APEX} run -o inner -- {program} launch 20");
    output(&mut sandbox.apex(&["run", "--device", "cpu", "-o", "outer", "--", "sh", "-c", &script]), 0);
    assert_eq!((sandbox.launches("outer"), sandbox.launches("inner")), (10, 20));
    assert_eq!(sandbox.json(&["report", "--json", "inner"])["run"]["device"], "cpu");
}

#[test]
fn an_outer_session_that_has_ended_is_not_joined() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&[], &["launch", "10"]);
    let mut later = sandbox.apex(&["run", "--device", "cpu", "--"]);
    later.arg(program()).args(["launch", "20"]).env("APEX_SESSION", sandbox.path("s"));
    assert!(!text(&output(&mut later, 0).stderr).contains("joins"));
    assert_eq!(sandbox.launches("s"), 10);
    assert_eq!(std::fs::read_dir(sandbox.path("")).unwrap().count(), 2);
}
