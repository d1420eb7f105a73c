//! The exit status of `apex`: that of the program, or a code of its own.

use crate::common::{APEX, Sandbox, output, program, text};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;

#[test]
fn the_exit_code_is_the_programs() {
    for code in [0, 1, 2, 77, 124, 125, 126, 127, 255] {
        let sandbox = Sandbox::new();
        output(&mut sandbox.record(&[], &["launch", "1", "exit", &code.to_string()]), code);
    }
}

#[test]
fn the_signal_is_the_programs() {
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGSEGV, libc::SIGABRT, libc::SIGINT, libc::SIGPIPE] {
        let sandbox = Sandbox::new();
        let status =
            sandbox.record(&[], &["launch", "3", "raise", &signal.to_string()]).output().unwrap().status;
        assert_eq!(status.signal(), Some(signal));
        assert_eq!(sandbox.launches("s"), 3);
        let run = &sandbox.json(&["report", "--json", "s"])["run"];
        assert_eq!(run["exit"]["signal"], signal);
    }
}

#[test]
fn a_missing_command_is_127_and_leaves_nothing_behind() {
    let sandbox = Sandbox::new();
    for command in ["no-such-command-anywhere", "./missing", "/no/such/file"] {
        let output = output(&mut sandbox.apex(&["run", "--device", "cpu", "--", command]), 127);
        assert!(text(&output.stderr).contains(command));
        assert_eq!(std::fs::read_dir(sandbox.path("")).unwrap().count(), 0);
    }
}

#[test]
fn a_command_that_cannot_be_executed_is_126() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("data"), "neither script nor program\n").unwrap();
    std::fs::create_dir(sandbox.path("folder")).unwrap();
    for command in ["./data", "./folder"] {
        output(&mut sandbox.apex(&["run", "--device", "cpu", "-o", "s", "--", command]), 126);
        assert!(!sandbox.path("s").exists());
    }
}

#[test]
fn apexs_own_failures_are_125_for_run_and_2_for_wrong_usage_elsewhere() {
    let sandbox = Sandbox::new();
    let program = program();
    let program = program.to_str().unwrap();
    for arguments in [
        &["run"][..],
        &["run", "--timing", "sometimes", "--", program],
        &["run", "--budget", "200", "--", program],
        &["run", "--max-size", "100K", "--", program],
        &["demo", "no_such_program"],
        &["run", "-o", "/proc/no/such", "--", program],
        &["report", "no-such-session"],
        &["report"],
        &["export", "--format", "csv", "no-such-session"],
    ] {
        let output = output(&mut sandbox.apex(arguments), 125);
        assert!(!output.stderr.is_empty(), "{arguments:?} says nothing");
    }
    for arguments in [&["report", "--no-such-option"][..], &["no-such-command"], &["export"], &["ctl"]] {
        output(&mut sandbox.apex(arguments), 2);
    }
    for arguments in
        [&["help"][..], &["--version"], &["run", "--help"], &["help", "exit-codes"], &["exit-codes"]]
    {
        output(&mut sandbox.apex(arguments), 0);
    }
}

#[test]
fn a_missing_library_is_named_with_the_places_searched() {
    let sandbox = Sandbox::new();
    let output = output(sandbox.record(&[], &["launch", "1"]).env("APEX_LIB_DIR", "/nowhere"), 125);
    let message = text(&output.stderr);
    assert!(
        message.contains("libapex.so") && message.contains("/nowhere") && message.contains("APEX_LIB_DIR"),
        "{message}"
    );
}

#[test]
fn a_session_never_overwrites() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&[], &["launch", "5"]);
    let output = output(&mut sandbox.record(&[], &["launch", "1"]), 125);
    assert!(text(&output.stderr).contains("not empty"));
    assert_eq!(sandbox.launches("s"), 5);
}

#[test]
fn a_folder_that_is_not_writable_is_an_error_before_the_program_starts() {
    let sandbox = Sandbox::new();
    let closed = sandbox.path("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o555)).unwrap();
    if std::fs::write(closed.join("probe"), "").is_ok() {
        return test_skip::impossible_here("this user (root?) writes into any folder");
    }
    let mut command = sandbox.apex(&["run", "--device", "cpu", "-o", "closed/s", "--", "touch", "started"]);
    let message = text(&output(&mut command, 125).stderr);
    assert!(message.contains("closed/s") && message.contains("-o"), "{message}");
    assert!(!sandbox.path("started").exists());
}

#[test]
fn the_default_folder_is_named_after_command_and_time() {
    let sandbox = Sandbox::new();
    for _ in 0..3 {
        let mut command = sandbox.apex(&["run", "--device", "cpu", "--"]);
        output(command.arg(program()).args(["launch", "1"]), 0);
    }
    let names = std::fs::read_dir(sandbox.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: Vec<_> = names.collect();
    assert_eq!(names.len(), 3, "three runs, within a second or not: {names:?}");
    assert!(names.iter().all(|name| name.starts_with("apex-cuda-program-20")), "{names:?}");
    let summary = output(&mut sandbox.apex(&["report"]), 0);
    assert!(text(&summary.stdout).contains("1 launch "));
}

#[test]
fn stdin_stdout_and_stderr_are_the_programs_own() {
    use std::io::Write;
    use std::process::Stdio;
    let sandbox = Sandbox::new();
    let bytes: Vec<u8> = (0..200_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let script = "cat; echo remark >&2";
    let mut command =
        sandbox.apex(&["run", "--quiet", "--device", "cpu", "-o", "s", "--", "sh", "-c", script]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert_eq!(output.stdout, bytes);
    assert!(text(&output.stderr).starts_with("remark\n"));
}

#[test]
fn quiet_runs_say_nothing() {
    let sandbox = Sandbox::new();
    let output = sandbox.recorded(&["--quiet"], &["launch", "1"]);
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn options_can_be_set_in_the_environment() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.apex(&["run", "--"]);
    command.arg(program()).args(["launch", "2"]);
    command
        .env("APEX_DEVICE", "cpu")
        .env("APEX_OUTPUT", "named")
        .env("APEX_QUIET", "1")
        .env("APEX_TIMING", "off");
    assert_eq!(text(&output(&mut command, 0).stderr), "");
    assert_eq!(sandbox.json(&["report", "--json", "named"])["run"]["timing"], "off");
}

#[test]
fn the_report_option_prints_the_report_to_stderr() {
    let sandbox = Sandbox::new();
    let output = sandbox.recorded(&["--report"], &["launch", "2"]);
    assert_eq!(text(&output.stdout), "launched 2\n");
    assert!(text(&output.stderr).contains("1 of 1 kernel,"));
}

/// A small stack is the program's affair: `apex` starts it where it starts without.
#[test]
fn a_limit_on_the_stack_does_not_keep_the_program_from_starting() {
    let sandbox = Sandbox::new();
    let run = |command: &str| {
        let mut shell = sandbox.command("sh");
        shell.args(["-c", &format!("ulimit -s 64; exec {command}")]).env("APEX", APEX);
        output(&mut shell, 7)
    };
    run("sh -c 'exit 7'");
    run("\"$APEX\" run --no-machine --device cpu -q -o s -- sh -c 'exit 7'");
}

/// Servers say that descriptors are missing; with those that there are they may not even say that.
#[test]
fn few_descriptors_are_an_error_message() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&[], &["launch", "1"]);
    for descriptors in 5..=11 {
        for command in ["dashboard --no-open s", "metrics --listen 127.0.0.1:0 s"] {
            let mut shell = sandbox.command("sh");
            let script = format!("ulimit -n {descriptors}; exec \"$APEX\" {command}");
            let said = text(&output(shell.args(["-c", &script]).env("APEX", APEX), 125).stderr);
            assert!(said.contains("apex: ") && !said.contains("panicked"), "{descriptors}: {said}");
        }
    }
}
