//! `apex alerts`: a program that becomes slow while it runs, and who is told.

use crate::common::{Running, Sandbox, listener, output, received, send, text, wait_until};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::mpsc::Receiver;

const TAKEN: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// Returns the next post: its path, and its body.
fn next(posted: &Receiver<(String, Vec<u8>)>) -> (String, Value) {
    let (path, body) = received(posted);
    (path, serde_json::from_slice(&body).unwrap())
}

/// Steps of four milliseconds, then longer ones until somebody ends them.
const BECOMES_SLOW: [&str; 6] = ["steps", "200", "4000", "steps", "100000", "14000"];

#[test]
fn a_program_that_becomes_slow_is_told_to_everybody_and_who_fails_holds_up_nobody() {
    let sandbox = Sandbox::new();
    let good = sandbox.record(&[], &["steps", "200", "4000"]).status().unwrap();
    assert!(good.success());
    std::fs::rename(sandbox.path("s"), sandbox.path("good")).unwrap();
    let (webhook, told) = listener(TAKEN);
    let (manager, posted) = listener(TAKEN);
    let (broken, _posted) = listener("HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n");
    // One that accepts and never answers.
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let hanging = format!("http://{}/hangs/SECRET", hanging.local_addr().unwrap());
    let mut program = Running::start(&mut sandbox.record(&["--quiet"], &BECOMES_SLOW));
    wait_until("the session is there", || sandbox.path("s").join("session.json").exists());
    let mut command = sandbox.apex(&["alerts", "s", "--baseline", "good", "--interval", "500ms"]);
    command.args(["--webhook", &hanging, "--webhook", &format!("{broken}/SECRET")]);
    command.args(["--webhook", &format!("{webhook}/hook?token=SECRET"), "--alertmanager", &manager]);
    command.args(["--exec", "cat > by-command.json; exit 3"]);
    let alerts = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();

    let (path, document) = next(&told);
    assert_eq!(path, "/hook?token=SECRET");
    assert_eq!((&document["alert"], &document["state"]), (&"slower".into(), &"firing".into()), "{document}");
    assert_eq!(document["next"], "apex diff good s");
    assert!(document["value"]["value"].as_f64() > document["reference"]["value"].as_f64(), "{document}");
    let (path, list) = next(&posted);
    assert_eq!((path.as_str(), &list[0]["labels"]["alertname"]), ("/api/v2/alerts", &"ApexSlower".into()));
    wait_until("the command has been run", || sandbox.path("by-command.json").exists());

    program.0.kill().unwrap();
    // `apex run` is gone, the program is not: it is known by its name alone.
    let session = apex_trace::Session::open(sandbox.path("s")).unwrap();
    session.processes.iter().for_each(|process| {
        // SAFETY: a plain system call; the process is the one that this test started.
        unsafe { libc::kill(process.pid.cast_signed(), libc::SIGKILL) };
    });
    let (_, document) = next(&told);
    assert_eq!((&document["state"], &document["reason"]), (&"resolved".into(), &"session_ended".into()));
    let ended = alerts.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", ended.status);
    let said = text(&ended.stderr);
    for line in [
        "apex: alert slower: s: a step takes ",
        "apex:   next: apex diff good s",
        "apex: over slower: s has ended",
    ] {
        assert!(said.lines().any(|said| said.starts_with(line)), "{said}");
    }
    assert!(said.contains("answered with status 500; alerts do not arrive there"), "{said}");
    assert!(said.contains("--exec: the command ended with exit status: 3"), "{said}");
    assert!(!said.contains("SECRET") && ended.stdout.is_empty(), "{said}");
}

#[test]
fn what_cannot_be_watched_or_told_is_refused_without_secrets() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&[], &["launch", "3"]);
    for (arguments, expected) in [
        (["alerts", "none"].as_slice(), "there is no session none"),
        (&["alerts", "--baseline", "none", "s"], "there is no session none"),
        (&["alerts", "--rule", "fast=3", "s"], "names are slower, occupancy"),
        (&["alerts", "--webhook", "https://me:SECRET@hooks/", "s"], "a user's name"),
        (&["alerts", "--alertmanager", "SECRET", "s"], "the value of --alertmanager is no address"),
    ] {
        let refused = text(&output(&mut sandbox.apex(arguments), 125).stderr);
        assert!(refused.contains(expected) && !refused.contains("SECRET"), "{refused}");
    }
    let ended = text(&output(&mut sandbox.apex(&["alerts", "s"]), 0).stderr);
    assert!(ended.contains("all watched sessions have ended"), "{ended}");
}

#[test]
fn it_waits_for_what_is_recorded_until_a_signal_comes() {
    let sandbox = Sandbox::new();
    let mut program = Running::start(&mut sandbox.record(&["--quiet"], &["launch", "5", "await", "end"]));
    program.read_until("waiting");
    let mut command = sandbox.apex(&["alerts", "--interval", "100ms"]);
    let mut alerts = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(alerts.stderr.take().unwrap()).lines();
    let session = sandbox.path("s");
    let session = session.to_str().unwrap();
    // Other tests of this machine record, too.
    let mut line = |start: &str| {
        lines
            .find(|line| line.as_ref().is_ok_and(|line| line.contains(start) && line.contains(session)))
            .unwrap()
    };
    line("alert idle: ").unwrap();
    std::fs::write(sandbox.path("end"), "").unwrap();
    assert!(program.0.wait().unwrap().success());
    line("over idle: ").unwrap();
    send(alerts.id(), libc::SIGTERM);
    assert!(alerts.wait().unwrap().success());
}
