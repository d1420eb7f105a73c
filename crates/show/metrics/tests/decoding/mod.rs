//! OpenTelemetry's own classes decode a request.

use serde_json::Value;
use std::io::Write as _;
use std::process::Stdio;
use test_process::Command;

/// Runs a program that decodes a request with the classes: returns a JSON document for each line of
/// output; `None` if the classes are not installed.
pub fn decoded(program: &str, request: &[u8]) -> Option<Vec<Value>> {
    let installed = ["-c", "import opentelemetry.proto.collector.metrics.v1.metrics_service_pb2"];
    let found = Command::new("python3").args(installed).stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        test_skip::missing_dependency("decoding needs Python with opentelemetry-proto");
        return None;
    }
    let mut command = Command::new("python3");
    command.args(["-c", program]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(request).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let lines = String::from_utf8(output.stdout).unwrap();
    Some(lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}
