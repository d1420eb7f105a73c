//! `apex dashboard`: what it serves, to whom, and what a browser shows of it.

use crate::common::{Running, Sandbox, controlling, h200_session, installed, output, send, terminal, text};
use crate::diffs::steps;
use crate::html::{HOSTILE, browser};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use test_process::Command;

/// A dashboard that runs, and its address without `http://` and the last `/`.
fn dashboard(sandbox: &Sandbox, arguments: &[&str]) -> (Running, String) {
    let mut running = Running::start(&mut sandbox.apex(&[&["dashboard", "--no-open"], arguments].concat()));
    let url = running.read_until("http://");
    (running, url["http://".len()..].trim_end_matches('/').to_owned())
}

/// Head and body of an answer.
fn get(address: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn json(address: &str, path: &str) -> Value {
    let (head, body) = get(address, path);
    assert!(head.starts_with("HTTP/1.1 200 "), "{path}: {head}\n{body}");
    serde_json::from_str(&body).unwrap()
}

/// The identifier of a session. (Other tests record sessions of the same name at the same time.)
fn id(sandbox: &Sandbox, address: &str, session: &str) -> String {
    let list = json(address, "/api/v1/sessions");
    let folder = sandbox.path(session).canonicalize().unwrap();
    let mut sessions = list["sessions"].as_array().unwrap().iter();
    let found = sessions.find(|listed| listed["folder"] == *folder.to_string_lossy());
    found.unwrap_or_else(|| panic!("no {session} in {list}"))["id"].as_str().unwrap().to_owned()
}

/// The document in a page.
fn document_of(sandbox: &Sandbox, file: &str) -> Value {
    let page = std::fs::read_to_string(sandbox.path(file)).unwrap();
    let (_, rest) = page.split_once("<script id=\"apex-document\" type=\"application/json\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn a_document_is_that_of_the_page_as_a_file() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&[], &["launch", "100"]);
    // Without a name, the newest session here is shown, and the server ends by a signal,
    // successfully.
    let (mut running, address) = dashboard(&sandbox, &[]);
    output(&mut sandbox.apex(&["report", "--html", "page.html", "s"]), 0);
    let mut file = document_of(&sandbox, "page.html");
    // (In the dashboard, the server answers what a file has in a table.)
    assert_eq!(file["what_if"].as_array().unwrap().len(), file["kernels"]["list"].as_array().unwrap().len());
    assert_eq!(file["lines"].as_array().unwrap().len(), file["kernels"]["list"].as_array().unwrap().len());
    for member in ["what_if", "lines"] {
        file[member] = Value::Array(Vec::new());
    }
    let path = format!("/api/v1/sessions/{}/document", id(&sandbox, &address, "s"));
    assert_eq!(json(&address, &path), file);
    assert_eq!(json(&address, &format!("{path}?kernel=*"))["key"]["launches"], 100);
    assert_eq!(json(&address, &format!("{path}?last=3600"))["key"]["launches"], 100);
    for (query, status, why) in [
        ("?phase=soon", 400, "phase: use startup, warmup, steady, all"),
        ("?window=1", 400, "is no window"),
        ("?rank=one", 400, "use numbers"),
        ("?kernel=regex:(", 400, "no regular expression"),
        ("?kernel=absent", 404, "no kernel matches `absent`"),
        ("?rank=7", 404, "the session has one rank"),
        ("?window=1000s..", 404, "no call began in it"),
    ] {
        let (head, body) = get(&address, &format!("{path}{query}"));
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{query}: {head}\n{body}");
        assert!(body.contains(why), "{query}: {body}");
    }
    send(running.0.id(), libc::SIGTERM);
    assert!(running.0.wait().unwrap().success());
}

#[test]
fn it_does_not_start_where_others_would_read_or_there_is_nothing() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("s")).unwrap();
    let refused = |arguments: &[&str], why: &str| {
        let said = output(&mut sandbox.apex(&[&["dashboard", "--no-open"], arguments].concat()), 125);
        assert!(text(&said.stderr).contains(why), "{arguments:?}: {}", text(&said.stderr));
    };
    refused(&["--listen", "0.0.0.0:0", "s"], "needs a token");
    refused(&["--token", "short", "s"], "at least 16 characters");
    refused(&["none"], "there is no session none");
    // A folder that is no session is shown as what it is.
    let (_running, address) = dashboard(&sandbox, &["s"]);
    let (head, body) = get(&address, &format!("/api/v1/sessions/{}/document", id(&sandbox, &address, "s")));
    assert!(head.starts_with("HTTP/1.1 422 ") && body.contains("is not an APEX session"), "{head}\n{body}");
}

/// It asks what the description allows and what it does not, at the edges and at random (with a
/// fixed seed), and judges each answer: no failure of the server, status, type and schema as
/// described, nonsense refused. That what is allowed is accepted is left out: `last` excludes
/// `window`, and `from` comes before `to`, which a description of single parameters cannot say.
#[test]
fn schemathesis_finds_nothing() {
    let Some(schemathesis) = installed("schemathesis/bin/schemathesis") else { return };
    let sandbox = Sandbox::new();
    sandbox.recorded(&[], &["launch", "100"]);
    let (_running, address) = dashboard(&sandbox, &["s"]);
    // A stream of events ends when it has been read for so many seconds.
    for (which, longest) in [("--exclude-path-regex", "30"), ("--include-path-regex", "1")] {
        let mut command = Command::new(&schemathesis);
        command.args(["run", &format!("http://{address}/api/v1/openapi.json"), which, "events$"]);
        command.args(["--url", &format!("http://{address}"), "--request-timeout", longest]);
        command.args(["--phases", "coverage,fuzzing", "--max-examples", "20", "--seed", "15"]);
        command.args(["--checks", "all", "--exclude-checks", "positive_data_acceptance"]);
        command.args(["--continue-on-failure", "--no-color"]).current_dir(sandbox.path(""));
        let judged = command.output().unwrap();
        let printed = text(&judged.stdout);
        assert!(judged.status.success() && printed.contains(" passed"), "{printed}{}", text(&judged.stderr));
    }
}

/// Ten million launches that a script makes up: what the dashboard answers about them is not
/// tested here.
#[test]
fn the_timeline_does_what_hands_and_keys_ask_for() {
    let test = "the_timeline_does_what_hands_and_keys_ask_for";
    let Some(mut panel) = browser(test, "panel.mjs") else { return };
    output(&mut panel, 0);
}

#[test]
fn a_browser_shows_the_reports_numbers_and_follows_a_program() {
    let test = "a_browser_shows_the_reports_numbers_and_follows_a_program";
    let (Some(mut check), Some(mut live)) = (browser(test, "check.mjs"), browser(test, "live.mjs")) else {
        return;
    };
    let sandbox = Sandbox::new();
    output(&mut sandbox.apex(&["demo", "-o", "cpu"]), 0);
    h200_session(&sandbox.path("hostile"), &[(HOSTILE, 64, 256, 20_000), ("tame", 3, 100, 5_000)]);
    let (_running, address) = dashboard(&sandbox, &["cpu", "hostile"]);
    for session in ["cpu", "hostile"] {
        let printed = output(&mut sandbox.apex(&["report", "--phase", "all", "--json", session]), 0);
        let report = sandbox.path(&format!("{session}.json"));
        std::fs::write(&report, printed.stdout).unwrap();
        check
            .arg(format!("http://{address}/#session={}&phase=all", id(&sandbox, &address, session)))
            .arg(report);
    }
    output(&mut check, 0);
    let words = ["launch", "100", "await", "more", "launch", "50", "await", "end"];
    let mut program = Running::start(&mut sandbox.record(&["--quiet"], &words));
    program.read_until("waiting");
    let (_running, address) = dashboard(&sandbox, &["s"]);
    output(live.arg(format!("http://{address}/")).arg(sandbox.path("")), 0);
    assert!(program.0.wait().unwrap().success());
}

/// Returns the answer of `apex predict --json` for a changed kernel of a session.
fn predicted(sandbox: &Sandbox, session: &str, kernel: &str, change: &str) -> Value {
    let words = ["predict", "--json", "--kernel", kernel, "--what-if", change, session];
    let document = sandbox.json(&words);
    let answers = document["predictions"].as_array().unwrap();
    answers.iter().find(|answer| answer["what_if"] == true).unwrap_or_else(|| panic!("{document}")).clone()
}

#[test]
fn kernels_in_other_configurations_are_as_apex_predict_says() {
    let sandbox = Sandbox::new();
    h200_session(&sandbox.path("s"), &[("scale", 1000, 256, 20_000), ("tame", 3, 100, 5_000)]);
    let (_running, address) = dashboard(&sandbox, &["s"]);
    let path = format!("/api/v1/sessions/{}", id(&sandbox, &address, "s"));
    let document = json(&address, &format!("{path}/document"));
    assert_eq!(document["what_if"], Value::Array(Vec::new()), "the server answers for any");
    let kernels = document["kernels"]["list"].as_array().unwrap();
    let ids = ["scale", "tame"].map(|name| {
        let kernel = kernels.iter().find(|kernel| kernel["short_name"] == name).unwrap();
        kernel["id"].as_str().unwrap()
    });
    let same = |said: &Value, predicted: &Value| {
        for (one, other) in [
            (&said["grid"], &predicted["launch"]["grid"]),
            (&said["block"], &predicted["launch"]["block"]),
            (&said["geometry"]["occupancy"], &predicted["computed"]["theoretical_occupancy"]),
            (&said["geometry"]["waves"], &predicted["computed"]["waves"]),
            (&said["geometry"]["tail_effect"], &predicted["computed"]["tail_effect"]),
            (&said["prediction"]["basis"], &predicted["prediction"]["basis"]),
        ] {
            assert!(one == other && !one.is_null(), "{said}\n{predicted}");
        }
        for part in ["value", "low", "high"] {
            let duration = &predicted["prediction"]["duration_ns"][part];
            assert_eq!(&said["prediction"]["duration_ns"][part], duration);
            assert_eq!(said["prediction"]["saves"][part], predicted["saves"][part]);
        }
        assert_eq!(said["prediction"]["from"], "measured");
    };
    for (name, id, query, change) in [
        ("scale", ids[0], "block=512", "block=512"),
        ("scale", ids[0], "block=64&registers=40", "block=64,registers=40"),
        ("tame", ids[1], "shared=40960", "shared=40K"),
        ("tame", ids[1], "block=32,4&registers=128&shared=1024", "block=32x4,registers=128,shared=1K"),
    ] {
        let said = json(&address, &format!("{path}/kernels/{id}/what-if?{query}"));
        same(&said, &predicted(&sandbox, "s", name, change));
    }
    let large = json(&address, &format!("{path}/kernels/{}/what-if?block=2000", ids[0]));
    let why = large["impossible"].as_str().unwrap();
    assert!(why.contains("above the device's limit of 1024") && large["geometry"].is_null(), "{why}");
    let (head, body) = get(&address, &format!("{path}/kernels/0/what-if"));
    assert!(head.starts_with("HTTP/1.1 404 ") && body.contains("no such kernel"), "{head}\n{body}");
    // A file has the usual blocks.
    output(&mut sandbox.apex(&["report", "--html", "page.html", "s"]), 0);
    let file = document_of(&sandbox, "page.html");
    for of_kernel in file["what_if"].as_array().unwrap() {
        let name = if of_kernel["id"] == *ids[0] { "scale" } else { "tame" };
        let own = if name == "scale" { 256 } else { 100 };
        let tried = of_kernel["tried"].as_array().unwrap();
        assert_eq!(tried.len(), if name == "scale" { 5 } else { 6 });
        for one in tried.iter().filter(|one| one["block"][0] != own) {
            same(one, &predicted(&sandbox, "s", name, &format!("block={}", one["block"][0])));
        }
    }
}

/// The next line that names a dashboard's address; the address without `http://` and the last `/`.
fn address_in(stderr: &mut impl BufRead) -> String {
    let lines = stderr.lines().map(Result::unwrap);
    let line = lines.into_iter().find(|line| line.contains("http://")).expect("an address");
    let (_, address) = line.split_once("http://").unwrap();
    address.split('/').next().unwrap().to_owned()
}

#[test]
fn a_run_shows_its_own_session_and_ends_as_the_program_does() {
    let sandbox = Sandbox::new();
    let words = ["launch", "100", "await", "end", "exit", "5"];
    let mut command = sandbox.record(&["--dashboard", "--quiet"], &words);
    command.stderr(Stdio::piped());
    let mut program = Running::start(&mut command);
    // The address comes first, whatever the program does.
    let mut stderr = BufReader::new(program.0.stderr.take().unwrap());
    let address = address_in(&mut stderr);
    program.read_until("waiting");
    let list = json(&address, "/api/v1/sessions");
    assert_eq!(list["sessions"].as_array().unwrap().len(), 1, "{list}");
    let path = format!("/api/v1/sessions/{}/document", id(&sandbox, &address, "s"));
    assert_eq!(json(&address, &path)["key"]["launches"], 100);
    std::fs::write(sandbox.path("end"), "").unwrap();
    // Nobody sits at a terminal: it ends with the program.
    assert_eq!(program.0.wait().unwrap().code(), Some(5));
    assert!(TcpStream::connect(&address).is_err());
    let refused = output(&mut sandbox.apex(&["run", "--dashboard=0.0.0.0:0", "-o", "t", "--", "true"]), 125);
    assert!(text(&refused.stderr).contains("needs a token"), "{}", text(&refused.stderr));
    assert!(!sandbox.path("t").exists());
}

#[test]
fn at_a_terminal_the_dashboard_of_a_run_stays_until_control_c() {
    let at_terminal = |sandbox: &Sandbox, words: &[&str]| {
        let (keyboard, screen) = terminal();
        let mut command = sandbox.record(&["--dashboard"], words);
        command.stdin(screen.try_clone().unwrap()).stdout(Stdio::piped()).stderr(screen);
        controlling(&mut command);
        let running = Running(command.spawn().unwrap());
        let mut screen = BufReader::new(File::try_clone(&keyboard).unwrap());
        let address = address_in(&mut screen);
        (running, keyboard, screen, address)
    };
    let sandbox = Sandbox::new();
    let (mut apex, mut keyboard, mut screen, address) = at_terminal(&sandbox, &["launch", "7", "exit", "6"]);
    let said = screen.by_ref().lines().map(Result::unwrap).find(|line| line.contains("until Ctrl-C"));
    assert!(said.unwrap().contains("the program has ended"));
    let path = format!("/api/v1/sessions/{}/document", id(&sandbox, &address, "s"));
    assert_eq!(json(&address, &path)["key"]["launches"], 7);
    keyboard.write_all(b"\x03").unwrap();
    assert_eq!(apex.0.wait().unwrap().code(), Some(6));
    // A program that is interrupted takes the dashboard with it. (SIGINT may be ignored here.)
    let sandbox = Sandbox::new();
    let (mut apex, _keyboard, _screen, _) = at_terminal(&sandbox, &["launch", "7", "await", "never"]);
    apex.read_until("waiting");
    send(apex.0.id(), libc::SIGTERM);
    assert_eq!(apex.0.wait().unwrap().signal(), Some(libc::SIGTERM));
}

#[test]
fn sessions_are_compared_as_by_apex_diff() {
    let sandbox = Sandbox::new();
    for (name, threads, ns) in [("one", 100, 3_000_000), ("two", 128, 2_700_000), ("three", 128, 2_690_000)] {
        steps(&sandbox, name, threads, ns);
    }
    let (_running, address) = dashboard(&sandbox, &["one", "two", "three"]);
    let [one, two, three] = ["one", "two", "three"].map(|name| id(&sandbox, &address, name));
    for (options, query) in [
        (vec!["--before", "one", "--after", "two", "three"], format!("before={one}&after={two},{three}")),
        (vec!["--phase", "all", "two", "one"], format!("before={two}&after={one}&phase=all")),
        (vec!["--kernel", "forward*", "one", "one"], format!("before={one}&after={one}&kernel=forward*")),
    ] {
        let mut printed = sandbox.json(&[vec!["diff", "--json"], options].concat());
        let mut served = json(&address, &format!("/api/v1/compare?{query}"));
        assert_eq!(served["after"].as_array().unwrap().len(), printed["after"].as_array().unwrap().len());
        for side in ["before", "after"] {
            // Sessions have the names that were typed, or their folders.
            printed[side].take();
            served[side].take();
        }
        assert_eq!(served, printed, "{query}");
    }
    let (head, body) = get(&address, &format!("/api/v1/compare?before={one}&after={two}&kernel=absent"));
    assert!(
        head.starts_with("HTTP/1.1 404 ") && body.contains("no kernel matches `absent`"),
        "{head}\n{body}"
    );
}

#[test]
fn a_browser_compares_sessions() {
    let Some(mut compare) = browser("a_browser_compares_sessions", "compare.mjs") else { return };
    let sandbox = Sandbox::new();
    steps(&sandbox, "before", 100, 3_000_000);
    steps(&sandbox, "after", 128, 2_700_000);
    let (_running, address) = dashboard(&sandbox, &["before", "after"]);
    let printed = output(&mut sandbox.apex(&["diff", "--json", "before", "after"]), 0);
    std::fs::write(sandbox.path("diff.json"), printed.stdout).unwrap();
    let [before, after] = ["before", "after"].map(|name| id(&sandbox, &address, name));
    compare.arg(format!("http://{address}/")).args([before, after]).arg(sandbox.path("diff.json"));
    output(&mut compare, 0);
}
