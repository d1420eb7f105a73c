//! `--code`: what a session keeps of a program's code and arguments, and what predictions make of
//! it.

use crate::common::{Sandbox, output, text};
use serde_json::{Value, json};
use std::path::Path;

/// A recorded demonstration, with these options.
fn record(sandbox: &Sandbox, session: &str, options: &[&str]) {
    let mut command = sandbox.apex(&["demo", "saxpy", "--device", "cpu", "-o", session]);
    output(command.args(options), 0);
}

/// Files of images in a session.
fn images(session: &Path) -> usize {
    let files = std::fs::read_dir(session).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "image")).count()
}

fn predictions(sandbox: &Sandbox, arguments: &[&str]) -> Vec<Value> {
    let document = sandbox.json(&[&["predict", "--json", "--device", "h200"], arguments].concat());
    document["predictions"].as_array().unwrap().clone()
}

#[test]
fn a_session_without_it_keeps_ptx_and_no_arguments() {
    let sandbox = Sandbox::new();
    record(&sandbox, "s", &[]);
    assert_eq!(images(&sandbox.path("s")), 1);
    let profile = &sandbox.json(&["report", "--json", "s"])["profile"];
    for kernel in profile["kernels"].as_array().unwrap() {
        assert_eq!((&kernel["code"]["known"], &kernel["code"]["arguments"]), (&"ptx".into(), &json!([])));
    }
    let bases = predictions(&sandbox, &["s"]);
    assert!(!bases.is_empty() && bases.iter().all(|answer| answer["prediction"]["basis"] == "code"));
}

#[test]
fn a_session_without_ptx_keeps_neither_code_nor_arguments() {
    let sandbox = Sandbox::new();
    record(&sandbox, "s", &["--no-ptx"]);
    assert_eq!(images(&sandbox.path("s")), 0);
    let profile = &sandbox.json(&["report", "--json", "s"])["profile"];
    assert!(profile["code"].is_null());
    assert!(profile["kernels"].as_array().unwrap().iter().all(|kernel| kernel["code"].is_null()));
    let bases = predictions(&sandbox, &["s"]);
    assert!(!bases.is_empty() && bases.iter().all(|answer| answer["prediction"]["basis"] == "kernel"));
}

#[test]
fn a_recorded_launch_is_predicted_as_the_same_launch_with_its_ptx_and_arguments() {
    let sandbox = Sandbox::new();
    record(&sandbox, "s", &["--code"]);
    assert_eq!(images(&sandbox.path("s")), 1);
    let ptx = Path::new(env!("CARGO_MANIFEST_DIR")).join("../device/device-code/generated/demo/saxpy.ptx");
    let kernels = sandbox.json(&["report", "--json", "s"])["profile"]["kernels"].as_array().unwrap().clone();
    let recorded = predictions(&sandbox, &["s"]);
    assert!(!recorded.is_empty());
    for answer in recorded {
        let prediction = &answer["prediction"];
        assert_eq!((&prediction["basis"], &answer["work_assumed"]), (&"work".into(), &false.into()));
        let is_same = |kernel: &&Value| kernel["short_name"] == answer["kernel"];
        let kernel = kernels.iter().find(is_same).expect("the kernel of the report");
        let given = kernel["code"]["arguments"][0]["parameters"].as_array().unwrap();
        let arguments: Vec<_> = given.iter().map(argument).collect();
        let sides = |of: &Value| {
            let sides: Vec<_> = of.as_array().unwrap().iter().map(ToString::to_string).collect();
            sides.join(",")
        };
        let (grid, block) = (sides(&answer["launch"]["grid"]), sides(&answer["launch"]["block"]));
        let registers = answer["attributes"]["registers"].to_string();
        let most = answer["attributes"]["max_threads_per_block"].to_string();
        let mut typed = vec!["--grid", &grid, "--block", &block, "--registers", &registers];
        typed.extend(["--max-threads", &most, "--ptx", ptx.to_str().unwrap(), "--kernel", "saxpy"]);
        arguments.iter().for_each(|argument| typed.extend(["--arg", argument]));
        assert_eq!(predictions(&sandbox, &typed)[0]["prediction"]["duration_ns"], prediction["duration_ns"]);
        assert!(
            prediction["bound"]["by"].is_string() && prediction["bound"]["share"].as_f64().unwrap() <= 1.0
        );
    }
    let printed = output(&mut sandbox.apex(&["predict", "s", "--device", "h200"]), 0);
    assert!(text(&printed.stdout).contains("from PTX and arguments, for 100%"), "{}", text(&printed.stdout));
}

/// A recorded parameter as it is typed: `ptr`, or its bits.
fn argument(parameter: &Value) -> String {
    if !parameter["pointers"].as_array().unwrap().is_empty() {
        assert!(parameter["bytes"].as_str().unwrap().bytes().all(|digit| digit == b'0'), "{parameter}");
        return "ptr".to_owned();
    }
    let digits = parameter["bytes"].as_str().unwrap();
    let bytes: Vec<_> = (0..digits.len()).step_by(2).map(|at| &digits[at..at + 2]).collect();
    format!("u{}:0x{}", 4 * digits.len(), bytes.into_iter().rev().collect::<String>())
}
