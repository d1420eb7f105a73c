//! `apex metrics`: what is scraped, printed and written is what was recorded.

use crate::common::{Running, Sandbox, installed, listener, output, received, send, text, wait_until};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use test_process::{Child, Command};

/// Launches of a session that the metrics tell, over all kernels.
fn launches(metrics: &str, session: &str) -> u64 {
    let prefix = format!("apex_kernel_launches_total{{session=\"{session}\",");
    let series = metrics.lines().filter(|line| line.starts_with(&prefix));
    series.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

/// Returns the answer of a server to a request for a path.
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
    let (path, body) = received(&posted);
    assert_eq!(path, "/v1/metrics");
    let has = |text: &str| body.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(has("apex.kernel_launches") && has("service.name") && has("nothing"), "{}", text(&body));
    send(exporter.id(), libc::SIGTERM);
    assert!(exporter.wait().unwrap().success());
    let refused = output(&mut sandbox.apex(&["metrics", "--otlp", "ftp://collector/SECRET"]), 125);
    let said = text(&refused.stderr);
    assert!(said.contains("--otlp is no address") && !said.contains("SECRET"), "{said}");
}

#[test]
fn spans_are_pushed_once_with_the_metrics_and_written_into_a_file() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&[], &["launch", "7"]);
    let (address, posted) = listener("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    output(&mut sandbox.apex(&["metrics", "--once", "--spans", "--otlp", &address, "s"]), 0);
    let mut posted: Vec<_> = [received(&posted), received(&posted)].into();
    posted.sort();
    let [(metrics, _), (traces, body)] = &posted[..] else { panic!("{posted:?}") };
    assert_eq!((metrics.as_str(), traces.as_str()), ("/v1/metrics", "/v1/traces"));
    output(&mut sandbox.apex(&["export", "--format", "otlp", "-o", "spans.pb", "s"]), 0);
    assert_eq!(std::fs::read(sandbox.path("spans.pb")).unwrap(), *body);
    // Nobody listens there any more.
    let (gone, wants) = ("http://127.0.0.1:9", ["metrics", "--once", "--otlp"]);
    let said = output(sandbox.apex(&wants).args([gone, "s"]), 125);
    assert!(text(&said.stderr).contains("did not take what was pushed"), "{}", text(&said.stderr));
}

/// A port of this machine that nobody uses.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Returns the content of a body compressed with gzip.
fn unzipped(body: &[u8]) -> Vec<u8> {
    let program = "import gzip, sys; sys.stdout.buffer.write(gzip.decompress(sys.stdin.buffer.read()))";
    let mut command = Command::new("python3");
    let mut child =
        command.args(["-c", program]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(body).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    output.stdout
}

#[test]
fn a_collector_receives_metrics_and_spans_and_passes_them_on() {
    let Some(rotel) = installed("rotel/rotel/rotel-agent") else { return };
    let sandbox = Sandbox::new();
    sandbox.recorded(&[], &["launch", "7"]);
    let (behind, passed_on) = listener("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let (http, grpc) = (format!("127.0.0.1:{}", free_port()), format!("127.0.0.1:{}", free_port()));
    let mut collector = Command::new(rotel);
    collector.args(["start", "--otlp-http-endpoint", &http, "--otlp-grpc-endpoint", &grpc]);
    collector.args(["--exporter", "otlp", "--otlp-exporter-endpoint", &behind]);
    collector.args(["--otlp-exporter-protocol", "http"]);
    collector.arg("--pid-file").arg(sandbox.path("pid")).arg("--log-file").arg(sandbox.path("log"));
    let _collector = Running::start(&mut collector);
    wait_until("the collector listens", || TcpStream::connect(&http).is_ok());
    let address = format!("http://{http}");
    output(&mut sandbox.apex(&["metrics", "--once", "--spans", "--otlp", &address, "s"]), 0);
    // It decodes what it receives, and encodes it again.
    let mut received = [received(&passed_on), received(&passed_on)];
    received.sort();
    let [metrics, spans] = received.each_ref().map(|(_, body)| unzipped(body));
    assert_eq!(received.each_ref().map(|(path, _)| path.as_str()), ["/v1/metrics", "/v1/traces"]);
    let has = |body: &[u8], text: &str| body.windows(text.len()).any(|window| window == text.as_bytes());
    for name in ["apex.kernel_launches", "apex.metrics", "nothing", "service.name"] {
        assert!(has(&metrics, name), "{name} is not in {}", text(&metrics));
    }
    for name in ["apex.spans", "process.command_line", "process.pid", "apex.session", "host.name"] {
        assert!(has(&spans, name), "{name} is not in {}", text(&spans));
    }
}

#[test]
fn others_reach_it_with_a_token_alone() {
    let sandbox = Sandbox::new();
    let refused = output(&mut sandbox.apex(&["metrics", "--listen", "0.0.0.0:0"]), 125);
    assert!(text(&refused.stderr).contains("it needs a token"), "{}", text(&refused.stderr));
    let short = output(&mut sandbox.apex(&["metrics", "--token", "short"]), 125);
    assert!(text(&short.stderr).contains("too short"), "{}", text(&short.stderr));
}
