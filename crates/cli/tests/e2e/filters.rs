//! Filters: `--kernel`, `--window`, `--rank` and `--phase` mean the same to every command that takes
//! them, and what they leave empty names what there is.

use crate::common::{Sandbox, output, program, text};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_session::{LEGACY, Recording};

/// Steps of two kernels: 60 of 3 ms, the last 20 of which are 3 ms longer.
fn steps() -> TempDir {
    let dir = TempDir::new().unwrap();
    let mut program = Recording::new(dir.path());
    let [forward, update] = ["_Z7forwardPf", "_Z6updatePf"].map(|name| program.function(name));
    let (forward, update) = (program.config(forward, 1056, 100), program.config(update, 264, 256));
    for step in 0..60 {
        program.timed(forward, LEGACY, 2_000_000);
        program.timed(update, LEGACY, 500_000);
        program.synchronise(LEGACY, 2_500_000);
        program.now += if step < 40 { 500_000 } else { 3_500_000 };
    }
    program.exit();
    test_session::open(&dir);
    dir
}

fn with_path<'a>(arguments: &[&'a str], dir: &'a TempDir) -> Vec<&'a str> {
    [arguments, &[dir.path().to_str().unwrap()]].concat()
}

#[test]
fn a_window_has_figures_of_its_own() {
    let (sandbox, dir) = (Sandbox::new(), steps());
    let report =
        |filters: &[&str]| sandbox.json(&with_path(&[&["report", "--json"], filters].concat(), &dir));
    let accounts = |report: &Value| report["profile"]["activities"][0]["accounts"].clone();
    let sum = |accounts: &Value| {
        let of = |value: &Value| value["value"].as_f64().unwrap();
        let idle = accounts["idle"].as_object().unwrap().values().map(of).sum::<f64>();
        idle + ["kernels", "collectives", "waiting", "copies", "unknown"]
            .map(|name| of(&accounts[name]))
            .iter()
            .sum::<f64>()
    };
    let part = report(&["--window", "30ms..60ms"]);
    assert_eq!(part["filters"]["window_ns"], json!({ "from": 30_000_000, "to": 60_000_000 }));
    assert_eq!(part["filters"]["phase"], Value::Null);
    assert_eq!((accounts(&part)["span_ns"].as_f64(), sum(&accounts(&part))), (Some(30e6), 30e6));
    let launches = part["profile"]["totals"]["launches"].as_u64().unwrap();
    assert!((18..=20).contains(&launches), "ten steps begin in 30 ms: {launches}");
    // Idle for longer at the end: the same program, another answer.
    let busy = |filters: &[&str]| report(filters)["profile"]["totals"]["gpu_busy"]["value"].as_f64().unwrap();
    assert!(busy(&["--window", "..100ms"]) > 0.8 && busy(&["--window", "150ms.."]) < 0.5);
    let page =
        text(&output(&mut sandbox.apex(&with_path(&["report", "--window", "150ms.."], &dir)), 0).stdout);
    assert!(page.starts_with("The GPU is idle 5") && page.contains("of the window"), "{page}");
    assert!(page.contains("Shown: the window 150 ms.."), "{page}");
}

#[test]
fn kernels_are_named_as_a_whole_or_by_an_expression() {
    let (sandbox, dir) = (Sandbox::new(), steps());
    let top = |pattern: &str| {
        let report = sandbox.json(&with_path(&["report", "--json", "--kernel", pattern], &dir));
        let names = report["top"].as_array().unwrap().iter().map(|place| {
            report["profile"]["kernels"][place.as_u64().unwrap() as usize]["short_name"]
                .as_str()
                .unwrap()
                .to_owned()
        });
        (names.collect::<Vec<_>>(), report["filters"]["kernels"].clone())
    };
    for pattern in ["forward", "forward(float*)", "_Z7forwardPf", "for*", "regex:w[ao]r"] {
        assert_eq!(top(pattern), (vec!["forward".to_owned()], json!([pattern])));
    }
    assert_eq!(top("regex:.").0, ["forward", "update"]);
    let page =
        text(&output(&mut sandbox.apex(&with_path(&["report", "--kernel", "forward"], &dir)), 0).stdout);
    let first = page.lines().next().unwrap();
    assert!(
        first.starts_with("`forward`: 80% of the kernels' time") && first.ends_with("launches."),
        "{first}"
    );
    assert!(page.contains("1 of 1 kernel,") && !page.contains("\nupdate"), "{page}");
    // Advice is about the kernel alone, and its share is one of the job.
    let share = |filters: &[&str]| {
        let advice = sandbox.json(&with_path(&[&["advise", "--json"], filters].concat(), &dir));
        let findings = advice["advice"]["findings"].as_array().unwrap().clone();
        assert!(filters.is_empty() || findings.iter().all(|finding| finding["scope"] == "kernel"));
        findings
            .into_iter()
            .find(|finding| finding["rule"] == "APEX-L01")
            .map(|found| found["saving"]["of_job"].clone())
    };
    assert_eq!(share(&["--kernel", "forward"]), share(&[]));
    assert_eq!(share(&["--kernel", "update"]), None, "its blocks are 8 warps");
}

#[test]
fn what_leaves_nothing_says_what_there_is() {
    let (sandbox, dir) = (Sandbox::new(), steps());
    let path = dir.path().to_str().unwrap();
    for (filter, said) in [
        (["--kernel", "Forward"], "no kernel matches `Forward`; the session has `forward`, `update`"),
        (["--kernel", "regex:^ward"], "no kernel matches `regex:^ward`; the session has"),
        (
            ["--window", "20s..30s"],
            "--window 20.0 s..30.0 s: no call began in it; the calls of the session began between",
        ),
        (["--rank", "5"], "--rank 5: the session has one rank, 0 (process"),
    ] {
        for command in [&["report"][..], &["advise"], &["diff", path]] {
            let arguments = [command, &filter, &[path]].concat();
            let said_here = text(&output(&mut sandbox.apex(&arguments), 125).stderr);
            assert!(said_here.contains(said), "{arguments:?}: {said_here}");
        }
    }
    for (filter, said) in
        [(["--kernel", "regex:("], "no regular expression"), (["--rank", "first"], "invalid digit")]
    {
        let said_here =
            text(&output(&mut sandbox.apex(&[&["report"], &filter[..], &[path]].concat()), 2).stderr);
        assert!(said_here.contains(said), "{said_here}");
    }
}

#[test]
fn ranks_are_the_processes_that_launched() {
    let sandbox = Sandbox::new();
    let script = format!("{0} launch 10 & {0} launch 30 & wait", program().display());
    output(&mut sandbox.apex(&["run", "--device", "cpu", "-q", "-o", "s", "--", "sh", "-c", &script]), 0);
    let report = |ranks: &[&str]| sandbox.json(&[&["report", "--json"], ranks, &["s"]].concat());
    let launches = |report: &Value| report["profile"]["totals"]["launches"].as_u64().unwrap();
    let whole = report(&[]);
    assert_eq!(launches(&whole), 40);
    let mut both = Vec::new();
    for process in whole["profile"]["processes"].as_array().unwrap() {
        let (rank, pid) = (process["rank"].to_string(), process["pid"].to_string());
        let alone = report(&["--rank", &rank]);
        assert_eq!(alone["profile"]["processes"].as_array().unwrap().len(), 1);
        assert_eq!(launches(&alone), process["launches"].as_u64().unwrap());
        assert_eq!(launches(&report(&["--rank", &pid])), launches(&alone));
        both.push(launches(&alone));
    }
    both.sort_unstable();
    assert_eq!((both, launches(&report(&["--rank", "0,1"]))), (vec![10, 30], 40));
}
