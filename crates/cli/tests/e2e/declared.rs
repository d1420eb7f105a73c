//! `apex tune --space`: commands whose times are known are tuned, resumed, interrupted and refused.

use crate::common::{Sandbox, output, send, text, wait_until};
use serde_json::Value;
use std::process::Stdio;
use test_process::Command;

/// A program that prints a time with one optimum, fails for one block, and counts its runs.
const BENCH: &str = r#"
echo run >> runs
[ "$block" = 96 ] && { echo "no registers left" >&2; exit 3; }
[ "$tile" = 7 ] && { echo "failed: correctness"; exit 0; }
b=$((block / 32 - 3)); t=$((tile - 4))
echo "device 0"
echo "$((1000 + b * b * 100 + t * t * 10)) us"
"#;

const SPACE: &str = r#"{
  "parameters": {"block": "[32 * i for i in range(1, 9)]", "tile": "range(1, 9)", "mode": ["a", "b"]},
  "restrictions": ["block * tile <= 1536"],
  "original": {"block": 32, "tile": 1, "mode": "a"}
}"#;

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("bench.sh"), BENCH).unwrap();
    std::fs::write(sandbox.path("space.json"), SPACE).unwrap();
    sandbox
}

fn tune(sandbox: &Sandbox, options: &[&str]) -> Command {
    let mut command = sandbox.apex(&["tune", "--space", "space.json", "--json"]);
    command.args(options).args(["--", "sh", "bench.sh", "{block}"]);
    command
}

fn found(sandbox: &Sandbox, options: &[&str]) -> Value {
    serde_json::from_slice(&output(&mut tune(sandbox, options), 0).stdout).unwrap()
}

fn runs(sandbox: &Sandbox) -> usize {
    std::fs::read_to_string(sandbox.path("runs")).unwrap_or_default().lines().count()
}

#[test]
fn a_command_is_tuned_and_its_results_are_kept() {
    let sandbox = sandbox();
    let options = ["--strategy", "exhaustive", "--pairs", "10", "--trials", "100%"];
    let first = found(&sandbox, &options);
    assert_eq!(first["schema"], "apex.searched/1");
    let best = &first["best"]["configuration"];
    // The optimum, block 96, fails; those beside it are equally fast.
    assert!(best["block"] == 64 || best["block"] == 128, "{first}");
    assert_eq!((&best["tile"], &first["best"]["time_ms"]), (&4.into(), &1.1.into()));
    assert_eq!(first["original"]["time_ms"], 1.49);
    assert_eq!(first["ratio"]["median"], 0.7383);
    assert_eq!(first["trials"], first["configurations"]);
    assert!(
        first["failed"]["runtime"].as_u64() > Some(8) && first["failed"]["correctness"].as_u64() > Some(3)
    );

    let made = runs(&sandbox);
    let second = found(&sandbox, &options);
    assert_eq!((&second["best"], &second["known"]), (&first["best"], &first["trials"]));
    assert!(runs(&sandbox) - made < 60, "the original and the confirmation alone are measured again");

    let file: Value =
        serde_json::from_slice(&std::fs::read(sandbox.path("space.results.json")).unwrap()).unwrap();
    let failed =
        file["results"].as_array().unwrap().iter().find(|result| result["configuration"]["block"] == 96);
    assert_eq!(failed.unwrap()["invalidity"], "runtime");
    assert_eq!(failed.unwrap()["measurements"][0]["value"], "exit status 3: no registers left");

    // The results can be replayed, and other code is refused.
    let replayed =
        sandbox.json(&["tune", "--replay", "space.results.json", "--json", "--strategy", "descend"]);
    assert_eq!(replayed["best"]["time_ms"], 1.1);
    std::fs::write(sandbox.path("bench.sh"), format!("{BENCH}\n# changed")).unwrap();
    let refused = output(&mut tune(&sandbox, &options), 125);
    assert!(
        text(&refused.stderr).contains("has results of something else (file bench.sh was"),
        "{}",
        text(&refused.stderr)
    );
}

#[test]
fn an_interrupted_search_keeps_its_results() {
    let sandbox = sandbox();
    let slow = format!("{BENCH}\nif [ $(wc -l < runs) -gt 12 ]; then touch waits; sleep 100 & wait; fi");
    std::fs::write(sandbox.path("bench.sh"), slow).unwrap();
    let mut command = tune(&sandbox, &["--strategy", "random"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("a run waits", || sandbox.path("waits").exists());
    send(child.id(), libc::SIGINT);
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(text(&ended.stderr).contains("the same command goes on from there"), "{}", text(&ended.stderr));
    let document: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(document["interrupted"], true);
    let file = std::fs::read_to_string(sandbox.path("space.results.json")).unwrap();
    assert!(results_in(&file) >= 10);
}

fn results_in(file: &str) -> usize {
    serde_json::from_str::<Value>(file).unwrap()["results"].as_array().unwrap().len()
}

#[test]
fn a_run_that_takes_too_long_is_killed_with_its_children() {
    let sandbox = sandbox();
    std::fs::write(sandbox.path("bench.sh"), "[ $tile = 1 ] || { sleep 1000 & sleep 1000; }\necho 1\n")
        .unwrap();
    let options = ["--timeout", "300ms", "--trials", "4", "--pairs", "0", "--strategy", "exhaustive"];
    let found = found(&sandbox, &options);
    assert_eq!(found["failed"]["timeout"], 2, "{found}");
}

#[test]
fn mistakes_are_refused_with_what_to_do() {
    let sandbox = sandbox();
    let refused = |arguments: &[&str], code: i32| text(&output(&mut sandbox.apex(arguments), code).stderr);
    let space = ["tune", "--space", "space.json"];
    let typo = refused(&[&space[..], &["--", "./bench", "{blocks}"]].concat(), 125);
    assert!(typo.contains("did you mean `block`"), "{typo}");
    let missing = refused(&[&space[..], &["--", "./missing"]].concat(), 125);
    assert!(missing.contains("cannot run ./missing"), "{missing}");
    let pairs = refused(&[&space[..], &["--pairs", "3", "--", "./bench"]].concat(), 2);
    assert!(pairs.contains("at least 10 decide"), "{pairs}");
    refused(&[&space[..], &["--verify", "--", "./bench"]].concat(), 2);
    refused(&space, 2);
    std::fs::write(sandbox.path("space.json"), r#"{"parameters": {"x": "eval('1')"}}"#).unwrap();
    let call = refused(&[&space[..], &["--", "./bench"]].concat(), 125);
    assert!(call.contains("the values of parameter `x`: calls of `eval` are not supported"), "{call}");
    let none = refused(&["tune", "--replay", "space.json"], 125);
    assert!(none.contains("it is no T4 file of results"), "{none}");
}

#[test]
fn a_program_that_never_prints_a_time_fails() {
    let sandbox = sandbox();
    std::fs::write(sandbox.path("bench.sh"), "echo nothing\n").unwrap();
    let done = output(&mut tune(&sandbox, &["--trials", "3", "--pairs", "0"]), 1);
    assert!(text(&done.stderr).contains("it printed no line with a time"), "{}", text(&done.stderr));
}

#[test]
fn two_searches_do_not_write_one_file() {
    let sandbox = sandbox();
    let mut asking = sandbox.apex(&["tune", "--space", "space.json", "--ask", "-o", "r.json"]);
    let mut first = asking.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    wait_until("the first search has the file", || sandbox.path("r.json.lock").exists());
    let mut asking = sandbox.apex(&["tune", "--space", "space.json", "--ask", "-o", "r.json"]);
    let said = text(&output(asking.stdin(Stdio::null()), 125).stderr);
    assert!(said.contains("another search writes its results into r.json"), "{said}");
    drop(first.stdin.take());
    first.wait().unwrap();
    assert!(!sandbox.path("r.json.lock").exists());
    output(&mut tune(&sandbox, &["-o", "r.json", "--trials", "3", "--pairs", "0"]), 0);
}
