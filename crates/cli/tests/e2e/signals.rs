//! Signals reach the program as if `apex` were not there: once.

use crate::common::{Running, Sandbox, controlling, output, program, send, terminal, text, wait_until};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use test_process::Command;

/// A program that counts a signal in the file `count` until the file `end` appears, then exits with
/// 5.
fn counting(sandbox: &Sandbox, signal: i32) -> Command {
    sandbox.record(&["--quiet"], &["count", &signal.to_string(), "count", "await", "end", "exit", "5"])
}

fn counted(sandbox: &Sandbox) -> usize {
    std::fs::read(sandbox.path("count")).unwrap_or_default().len()
}

#[test]
fn a_signal_to_apex_is_passed_on_once() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2] {
        let sandbox = Sandbox::new();
        let mut apex = Running::start(&mut counting(&sandbox, signal));
        apex.read_until("waiting");
        for sent in 1..=3 {
            send(apex.0.id(), signal);
            wait_until("the signal arrives", || counted(&sandbox) >= sent);
        }
        std::fs::write(sandbox.path("end"), "").unwrap();
        assert_eq!(apex.0.wait().unwrap().code(), Some(5));
        assert_eq!(counted(&sandbox), 3, "signal {signal}");
    }
}

#[test]
fn a_signal_that_ends_the_program_ends_apex_too() {
    let sandbox = Sandbox::new();
    let mut apex = Running::start(&mut sandbox.record(&[], &["launch", "4", "await", "never"]));
    apex.read_until("waiting");
    send(apex.0.id(), libc::SIGTERM);
    assert_eq!(apex.0.wait().unwrap().signal(), Some(libc::SIGTERM));
    assert_eq!(sandbox.launches("s"), 4);
}

#[test]
fn control_c_reaches_the_program_once() {
    let sandbox = Sandbox::new();
    let (mut keyboard, screen) = terminal();
    let mut command = counting(&sandbox, libc::SIGINT);
    command.stdin(Stdio::from(screen)).stdout(Stdio::piped()).stderr(Stdio::null());
    controlling(&mut command);
    let mut apex = Running(command.spawn().unwrap());
    apex.read_until("waiting");
    for typed in 1..=3 {
        keyboard.write_all(b"\x03").unwrap();
        wait_until("the program gets the signal", || counted(&sandbox) >= typed);
    }
    std::fs::write(sandbox.path("end"), "").unwrap();
    assert_eq!(apex.0.wait().unwrap().code(), Some(5));
    assert_eq!(counted(&sandbox), 3);
}

/// Signals that a program finds blocked, ignored or caught when it starts.
fn signal_state(command: &mut Command) -> String {
    // SAFETY: between fork and exec; async-signal-safe calls on locals.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            libc::signal(libc::SIGINT, libc::SIG_IGN);
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            let mut blocked = std::mem::zeroed();
            libc::sigemptyset(&raw mut blocked);
            libc::sigaddset(&raw mut blocked, libc::SIGUSR2);
            libc::sigaddset(&raw mut blocked, libc::SIGTERM);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const blocked, std::ptr::null_mut());
            Ok(())
        })
    };
    let status = text(&output(command, 0).stdout);
    status
        .lines()
        .filter(|line| line.starts_with("Sig") && !line.starts_with("SigQ") || line.starts_with("Shd"))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn the_program_inherits_the_signals_that_apex_inherited() {
    let sandbox = Sandbox::new();
    let bare = signal_state(sandbox.command("cat").arg("/proc/self/status"));
    let mut recorded =
        sandbox.apex(&["run", "--quiet", "--device", "cpu", "-o", "s", "--", "cat", "/proc/self/status"]);
    assert_eq!(signal_state(&mut recorded), bare);
    let ignored = bare.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
    let ignored = u64::from_str_radix(ignored, 16).unwrap();
    for signal in [libc::SIGINT, libc::SIGPIPE, libc::SIGCHLD] {
        assert_ne!(ignored & 1 << (signal - 1), 0, "what this test rests on");
    }
    let mut joined = sandbox.apex(&["run", "--quiet", "--device", "cpu", "-o", "t", "--"]);
    joined.arg(crate::common::APEX).args(["run", "--quiet", "--", "cat", "/proc/self/status"]);
    assert_eq!(signal_state(&mut joined), bare, "a nested run, too");
}

#[test]
fn ignored_signals_stay_ignored_by_the_program() {
    let sandbox = Sandbox::new();
    let words = ["ignore", "15", "launch", "1", "await", "end", "exit", "6"];
    let mut apex = Running::start(&mut sandbox.record(&["--quiet"], &words));
    apex.read_until("waiting");
    send(apex.0.id(), libc::SIGTERM);
    std::fs::write(sandbox.path("end"), "").unwrap();
    assert_eq!(apex.0.wait().unwrap().code(), Some(6));
    assert!(program().exists());
}

/// A signal ends `apex` after the program has ended, however long its work takes. Here it cannot
/// write its report, because nobody reads its stderr.
#[test]
fn a_signal_after_the_program_ends_apex() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let sandbox = Sandbox::new();
        let mut command = sandbox.record(&["--report"], &["launch", "3"]);
        let (reader, writer) = std::io::pipe().unwrap();
        // SAFETY: system calls on a descriptor that is open.
        unsafe {
            let flags = libc::fcntl(writer.as_raw_fd(), libc::F_GETFL);
            libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK);
            let filling = [b' '; 512];
            while libc::write(writer.as_raw_fd(), filling.as_ptr().cast(), filling.len()) > 0 {}
            libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, flags);
        }
        // Under nohup, or behind a shell's `&`, the tests ignore some of these signals, and `apex`
        // would inherit that.
        // SAFETY: a system call without memory.
        unsafe {
            command.pre_exec(move || {
                libc::signal(signal, libc::SIG_DFL);
                Ok(())
            });
        }
        let mut apex = Running(command.stdout(Stdio::null()).stderr(writer).spawn().unwrap());
        let id = apex.0.id();
        drop(command);
        wait_until("the session has ended", || {
            let meta = std::fs::read_to_string(sandbox.path("s/session.json")).unwrap_or_default();
            meta.contains("\"ended_real_ns\": 1")
        });
        // It may be a moment before that is followed by taking no more signals for the program.
        wait_until("signals are no longer taken for the program", || {
            let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
            let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t")).unwrap();
            u64::from_str_radix(blocked, 16).unwrap() & 1 << (signal - 1) == 0
        });
        send(id, signal);
        assert_eq!(apex.0.wait().unwrap().signal(), Some(signal));
        drop(reader);
        assert_eq!(sandbox.launches("s"), 3);
    }
}

/// With `--quiet`, nothing is read of the records, which may be many.
#[test]
fn a_quiet_run_reads_no_records() {
    let sandbox = Sandbox::new();
    // Whatever is in a chunk behind its head: here it is damaged before `apex` could read it.
    let damage = "for file in s/*.rec; do printf '\\377\\377\\377\\377' | \
        dd of=$file bs=1 seek=$((4096 + 262144 + 128)) conv=notrunc status=none; done";
    let script = format!("{} launch 3 && {damage}", program().display());
    let run = |options: &[&str]| {
        let mut command = sandbox.apex(&["run", "--device", "cpu", "-o", "s"]);
        let said = text(&output(command.args(options).args(["--", "sh", "-c", &script]), 0).stderr);
        std::fs::remove_dir_all(sandbox.path("s")).unwrap();
        said
    };
    let loud = run(&[]);
    assert!(loud.contains(".rec: byte "), "the damage shows where records are read: {loud}");
    assert_eq!(run(&["--quiet"]), "");
}
