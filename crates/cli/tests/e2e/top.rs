//! `apex top`: looks at programs that run, keys, and a terminal that is given back.

use crate::common::{APEX, Running, Sandbox, controlling, output, send, terminal, text, wait_until};
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use test_process::Command;

/// A program that has launched, and waits for the file `end`.
fn waiting(sandbox: &Sandbox) -> Running {
    let mut running =
        Running::start(&mut sandbox.record(&["--quiet", "--no-ptx"], &["launch", "25", "await", "end"]));
    running.read_until("waiting");
    running.wait_for_name(&sandbox.path("s"));
    running
}

/// Findings without the statements of the program: a look reads no source files.
fn without_places(findings: &Value) -> Value {
    let mut findings = findings.clone();
    for finding in findings.as_array_mut().unwrap() {
        finding.as_object_mut().unwrap().remove("place");
    }
    findings
}

#[test]
fn a_look_at_a_program_that_runs_agrees_with_the_report_of_that_window() {
    let sandbox = Sandbox::new();
    let mut program = waiting(&sandbox);
    let top = sandbox.json(&["top", "--json", "--last", "600s", "s"]);
    let look = &top["sessions"][0];
    assert_eq!((&top["schema"], &look["session"]), (&"apex.top/1".into(), &"s".into()));
    assert_eq!(look["problem"], Value::Null);
    assert_eq!(look["running"].as_array().unwrap().len(), 1);
    assert_eq!(look["profile"]["totals"]["launches"], 25);
    let (from, to) = (&look["window_ns"]["from"], &look["window_ns"]["to"]);
    let window = format!("{from}ns..{to}ns");
    let report = sandbox.json(&["report", "--json", "--window", &window, "s"]);
    for member in ["totals", "kernels", "calls", "activities", "devices"] {
        assert_eq!(look["profile"][member], report["profile"][member], "{member}");
    }
    assert_eq!(look["advice"]["findings"], without_places(&report["advice"]["findings"]));
    assert_eq!(look["run"]["command"], report["run"]["command"]);
    let seconds = (to.as_f64().unwrap() - from.as_f64().unwrap()) / 1e9;
    let rate = look["launches_per_s"]["value"].as_f64().unwrap();
    assert!((rate * seconds - 25.0).abs() < 1e-6, "{rate} in {seconds} s");

    // Without a name, it is found.
    let all = sandbox.json(&["top", "--json"]);
    let folder = sandbox.path("s").canonicalize().unwrap();
    let sessions = all["sessions"].as_array().unwrap();
    assert!(sessions.iter().any(|session| session["session"] == folder.to_str().unwrap()), "{all:#}");

    std::fs::write(sandbox.path("end"), "").unwrap();
    assert!(program.0.wait().unwrap().success());
    let ended = sandbox.json(&["top", "--json", "s"]);
    assert_eq!(ended["sessions"][0]["running"], Value::Array(Vec::new()));
}

#[test]
fn one_frame_needs_no_terminal() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&["--quiet"], &["launch", "25"]);
    let once = |options: &[&str]| {
        let mut command = sandbox.apex(&["top", "--once", "s"]);
        text(&output(command.args(options).env("APEX_COLOR", "always"), 0).stdout)
    };
    let frame = once(&[]);
    assert!(frame.starts_with(" apex top  s ") && frame.contains("ended"), "{frame}");
    assert!(frame.contains("1 kernel, by ") && frame.contains("APEX CPU device"), "{frame}");
    assert!(frame.lines().all(|line| line.chars().count() <= 100), "{frame}");
    assert!(!frame.contains('\x1b') && !frame.contains("q quit"), "{frame}");
    let two = text(&output(&mut sandbox.apex(&["top", "--once", "s", "s"]), 0).stdout);
    assert_eq!(two.matches("apex top  s ").count(), 2, "{two}");

    let refused = |mut command: Command| text(&output(&mut command, 125).stderr);
    assert!(refused(sandbox.apex(&["top", "s"])).contains("`apex top --once` prints one frame"));
    assert!(refused(sandbox.apex(&["top", "none"])).contains("there is no session none"));
    std::fs::create_dir(sandbox.path("empty")).unwrap();
    let mixed = sandbox.json(&["top", "--json", "s", "empty"]);
    assert_eq!(mixed["sessions"][1]["profile"], Value::Null);
    assert!(mixed["sessions"][1]["problem"].is_string(), "{mixed:#}");
    assert!(refused(sandbox.apex(&["top", "--once", "empty"])).contains("empty: "));
}

/// `apex top` on a terminal.
struct OnTerminal {
    apex: Running,
    keyboard: File,
    shown: Arc<Mutex<Vec<u8>>>,
    /// The terminal's other side, which outlives the program.
    side: OwnedFd,
    before: libc::termios,
}

impl OnTerminal {
    fn start(sandbox: &Sandbox, kind: &str) -> Self {
        let (keyboard, side) = terminal();
        let before = modes(&side);
        let mut command = sandbox.command(APEX);
        let stdio = || Stdio::from(side.try_clone().unwrap());
        command.args(["top", "s"]).env("TERM", kind).env_remove("COLUMNS");
        command.stdin(stdio()).stdout(stdio()).stderr(stdio());
        controlling(&mut command);
        let apex = Running(command.spawn().unwrap());
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (mut screen, seen) = (keyboard.try_clone().unwrap(), Arc::clone(&shown));
        // It ends with the terminal.
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = screen.read(&mut bytes) {
                seen.lock().unwrap().extend_from_slice(&bytes[..read]);
            }
        });
        Self { apex, keyboard, shown, side, before }
    }

    fn shown(&self) -> String {
        text(&self.shown.lock().unwrap())
    }

    /// Waits until it has drawn this.
    fn shows(&self, what: &str) {
        wait_until(what, || self.shown().contains(what));
    }

    fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Its end: the screen and the modes of the terminal are what they were.
    fn ends(mut self) -> std::process::ExitStatus {
        let mut status = None;
        wait_until("its end", || {
            status = self.apex.0.try_wait().unwrap();
            status.is_some()
        });
        self.shows("\x1b[?1049l");
        self.shows("\x1b[?25h");
        let after = modes(&self.side);
        let flags = |modes: &libc::termios| (modes.c_iflag, modes.c_oflag, modes.c_cflag, modes.c_lflag);
        assert_eq!(flags(&after), flags(&self.before), "{}", self.shown());
        status.unwrap()
    }
}

fn modes(terminal: &OwnedFd) -> libc::termios {
    // SAFETY: plain data, for which zeros are valid; the call fills it.
    unsafe {
        let mut modes: libc::termios = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(terminal.as_raw_fd(), &raw mut modes), 0);
        modes
    }
}

#[test]
fn keys_work_and_the_terminal_is_given_back() {
    let sandbox = Sandbox::new();
    let mut program = waiting(&sandbox);
    let mut top = OnTerminal::start(&sandbox, "xterm-256color");
    top.shows("1 kernel, by ");
    assert_ne!(modes(&top.side).c_lflag, top.before.c_lflag, "what this test rests on");
    // (Ctrl-L draws all words anew: else only what differs is drawn.)
    top.types("?\x0c");
    top.shows("programs");
    top.types("x/\x0c");
    top.shows("Filter:");
    top.types("zzz\r\x0c");
    top.shows("filter: zzz");
    top.types("q");
    assert!(top.ends().success());
    assert!(program.0.try_wait().unwrap().is_none(), "the program goes on");

    for signal in [libc::SIGTERM, libc::SIGINT] {
        let top = OnTerminal::start(&sandbox, "xterm-256color");
        top.shows("1 kernel, by ");
        send(top.apex.0.id(), signal);
        assert_eq!(top.ends().signal(), Some(signal));
    }

    // A session that is deleted while it is shown is said to be gone.
    let mut top = OnTerminal::start(&sandbox, "xterm-256color");
    top.shows("1 kernel, by ");
    std::fs::rename(sandbox.path("s"), sandbox.path("t")).unwrap();
    top.shows("last look failed");
    top.types("q");
    assert!(top.ends().success());
    std::fs::write(sandbox.path("end"), "").unwrap();
    assert!(program.0.wait().unwrap().success());
}

#[test]
fn a_terminal_that_cannot_move_its_cursor_is_not_drawn_on() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&["--quiet"], &["launch", "1"]);
    let mut top = OnTerminal::start(&sandbox, "dumb");
    assert_eq!(top.apex.0.wait().unwrap().code(), Some(125));
    top.shows("`apex top --once` prints one frame");
    assert!(!top.shown().contains('\x1b'), "{}", top.shown());
}
