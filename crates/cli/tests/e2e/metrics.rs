//! `apex metrics`: what is scraped, printed and written is what was recorded.

use crate::common::{Running, Sandbox, listener, output, send, text, wait_until};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

/// Launches of a session that the metrics tell, over all kernels.
fn launches(metrics: &str, session: &str) -> u64 {
    let prefix = format!("apex_kernel_launches_total{{session=\"{session}\",");
    let series = metrics.lines().filter(|line| line.starts_with(&prefix));
    series.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

/// What a server answers to a request for a path.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Starts a server, and returns its address.
fn listening(sandbox: &Sandbox, arguments: &[&str]) -> (Child, String) {
    let mut command = sandbox.apex(&["metrics", "--listen", "127.0.0.1:0"]);
    let mut server = command.args(arguments).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
    let address = address.unwrap_or_else(|| panic!("no address: {line}")).to_owned();
    (server, address)
}

#[test]
fn metrics_are_printed_once() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&[], &["launch", "7"]);
    let printed = output(&mut sandbox.apex(&["metrics", "--once", "s"]), 0);
    let printed = text(&printed.stdout);
    assert_eq!(launches(&printed, "s"), 7, "{printed}");
    assert!(printed.contains("apex_processes_running{session=\"s\"} 0"), "{printed}");
    let missing = output(&mut sandbox.apex(&["metrics", "--once", "none"]), 125);
    assert!(text(&missing.stderr).contains("there is no session none"));
}

#[test]
fn a_session_that_is_recorded_is_scraped_while_it_runs_and_once_more() {
    let sandbox = Sandbox::new();
    let mut program =
        Running::start(&mut sandbox.record(&[], &["launch", "5", "await", "end", "launch", "4"]));
    program.read_until("waiting");
    let (mut server, address) = listening(&sandbox, &["s"]);
    let answer = get(&address, "/metrics");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{answer}");
    assert_eq!(launches(&answer, "s"), 5, "{answer}");
    assert!(answer.contains("apex_processes_running{session=\"s\"}"), "{answer}");
    std::fs::write(sandbox.path("end"), "").unwrap();
    assert!(program.0.wait().unwrap().success());
    assert_eq!(launches(&get(&address, "/metrics"), "s"), 9);
    assert!(get(&address, "/other").starts_with("HTTP/1.1 404 "));
    send(server.id(), libc::SIGTERM);
    assert!(server.wait().unwrap().success());
}

#[test]
fn a_file_is_written_whole_until_a_signal_comes() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&[], &["launch", "3"]);
    let mut command = sandbox.apex(&["metrics", "s", "--textfile", "apex.prom", "--interval", "1"]);
    let mut writer = command.spawn().unwrap();
    wait_until("the file is there", || sandbox.path("apex.prom").exists());
    send(writer.id(), libc::SIGINT);
    assert!(writer.wait().unwrap().success());
    assert_eq!(launches(&std::fs::read_to_string(sandbox.path("apex.prom")).unwrap(), "s"), 3);
}

#[test]
fn metrics_are_pushed_to_a_collector_until_a_signal_comes() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&[], &["launch", "7"]);
    let (address, posted) = listener("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let mut command = sandbox.apex(&["metrics", "s", "--interval", "1", "--otlp", &address]);
    let mut exporter = command.spawn().unwrap();
    let (path, body) = posted.recv().unwrap();
    assert_eq!(path, "/v1/metrics");
    let has = |text: &str| body.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(has("apex.kernel_launches") && has("service.name") && has("nothing"), "{}", text(&body));
    send(exporter.id(), libc::SIGTERM);
    assert!(exporter.wait().unwrap().success());
    let refused = output(&mut sandbox.apex(&["metrics", "--otlp", "https://collector/SECRET"]), 125);
    let said = text(&refused.stderr);
    assert!(said.contains("--otlp asks for https") && !said.contains("SECRET"), "{said}");
}

#[test]
fn others_reach_it_with_a_token_alone() {
    let sandbox = Sandbox::new();
    let refused = output(&mut sandbox.apex(&["metrics", "--listen", "0.0.0.0:0"]), 125);
    assert!(text(&refused.stderr).contains("it needs a token"), "{}", text(&refused.stderr));
    let short = output(&mut sandbox.apex(&["metrics", "--token", "short"]), 125);
    assert!(text(&short.stderr).contains("too short"), "{}", text(&short.stderr));
}
