//! `apex diff`: its first sentence, what it is measured by, and its exit codes.

use crate::common::{Sandbox, output, program, text};
use serde_json::{Value, json};
use std::path::Path;
use test_session::{LEGACY, Recording};

/// Creates a session `name`: steps of a kernel that takes `kernel_ns` in blocks of `threads`
/// threads, and a pause of 1 ms.
pub fn steps(sandbox: &Sandbox, name: &str, threads: u32, kernel_ns: u64) {
    let dir = tempfile::TempDir::new().unwrap();
    let mut program = Recording::new(dir.path());
    let function = program.function("_Z7forwardPf");
    let config = program.config(function, 1056, threads);
    for _ in 0..60 {
        program.timed(config, LEGACY, kernel_ns);
        program.synchronise(LEGACY, kernel_ns);
        program.now += 1_000_000;
    }
    program.exit();
    test_session::open(&dir);
    copy(dir.path(), &sandbox.path(name));
}

/// Creates a session `name`: `steps` steps of about 200 µs, which the host launches every 40 µs.
fn running_ahead(sandbox: &Sandbox, name: &str, steps: u64) {
    let dir = tempfile::TempDir::new().unwrap();
    let mut program = Recording::new(dir.path());
    let function = program.function("_Z7forwardPf");
    let config = program.config(function, 1056, 128);
    for step in 0..steps {
        let start = program.now;
        program.launch_taking(config, LEGACY, 40_000);
        if step % 3 == 0 {
            program.timing(config, LEGACY, start, 195_000 + step * 7919 % 11 * 1000, 0);
        }
    }
    program.synchronise(LEGACY, steps * 160_000);
    program.exit();
    test_session::open(&dir);
    copy(dir.path(), &sandbox.path(name));
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn page(sandbox: &Sandbox, columns: usize, arguments: &[&str]) -> String {
    let mut command = sandbox.apex(&[&["diff"], arguments].concat());
    text(&output(command.env("COLUMNS", columns.to_string()), 0).stdout)
}

/// A page whose first sentence is one line.
fn unwrapped(page: &str) -> String {
    page.replace("\n  ", " ")
}

#[test]
fn a_longer_run_of_a_program_that_runs_ahead_takes_no_longer_for_a_step() {
    let sandbox = Sandbox::new();
    running_ahead(&sandbox, "short", 40);
    running_ahead(&sandbox, "long", 800);
    for sides in [["short", "long"], ["long", "short"]] {
        let page = unwrapped(&page(&sandbox, 150, &[&sides[..], &["--fail-above", "1"]].concat()));
        assert!(page.starts_with("A step takes 200 µs") && page.contains("not significant"), "{page}");
    }
    let report = unwrapped(&text(&output(&mut sandbox.apex(&["report", "long"]), 0).stdout));
    let said = "A step takes 200 µsᵖ (mean of 799; launch intervals: p10 40.";
    assert!(report.contains(said) && report.contains("; its kernels take 200 µsᵖ."), "{report}");
    let bars: Vec<_> = report.lines().filter(|line| line.contains("  kernels  ")).collect();
    assert!(bars.len() == 1 && bars[0].contains("200 µs") && bars[0].contains("100%"), "{report}");
}

#[test]
fn the_first_sentence_says_what_a_step_takes_and_advice_is_held_to_its_promise() {
    let sandbox = Sandbox::new();
    for (name, threads, ns) in [
        ("before", 100, 3_000_000),
        ("kept", 128, 2_700_000),
        ("more", 128, 1_000_000),
        ("less", 128, 3_600_000),
    ] {
        steps(&sandbox, name, threads, ns);
    }
    let kept = page(&sandbox, 100, &["before", "kept"]);
    let first = kept.lines().next().unwrap();
    assert!(first.starts_with("A step takes 3.70 ms instead of 4.00 ms (1.08× faster; means of 5"), "{kept}");
    let row = |page: &str| page.lines().find(|line| line.contains("APEX-L01")).unwrap().to_owned();
    assert!(
        row(&kept).starts_with("gone") && row(&kept).ends_with("300 µs  kept  its kernels' time"),
        "{kept}"
    );
    assert!(row(&page(&sandbox, 100, &["before", "more"])).contains("  more  "));
    let slower = page(&sandbox, 100, &["before", "less"]);
    assert!(row(&slower).contains("  less  ") && slower.contains("1.15× slower"), "{slower}");
    assert!(row(&page(&sandbox, 100, &["before", "before"])).starts_with("still "));
    assert!(
        unwrapped(&page(&sandbox, 100, &["before", "before"]))
            .contains("as before: the difference is not significant")
    );
    // What the kernels are sorted by stays on narrow pages.
    for columns in [60, 80, 200] {
        let page = page(&sandbox, columns, &["before", "kept"]);
        let too_wide: Vec<&str> = page.lines().filter(|line| line.chars().count() > columns).collect();
        assert!(too_wide.is_empty(), "{too_wide:?}");
        assert!(page.contains("GPU time") && page.contains("−300 µs"), "{page}");
    }
}

#[test]
fn repeats_say_what_is_chance() {
    let sandbox = Sandbox::new();
    for (name, ns) in [
        ("a1", 2_990_000),
        ("a2", 3_000_000),
        ("a3", 3_010_000),
        ("b1", 2_090_000),
        ("b2", 2_100_000),
        ("b3", 2_110_000),
        ("c1", 2_500_000),
        ("c2", 3_400_000),
        ("c3", 2_900_000),
    ] {
        steps(&sandbox, name, 128, ns);
    }
    let sides = |after: &'static str| {
        let after = [1, 2, 3].map(|run| format!("{after}{run}"));
        [&["--before", "a1", "a2", "a3", "--after"][..], &[]]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .chain(after)
            .collect::<Vec<_>>()
    };
    let faster = sides("b");
    let faster: Vec<&str> = faster.iter().map(String::as_str).collect();
    let text = page(&sandbox, 200, &faster);
    assert!(
        text.starts_with("A step takes 3.10 ms instead of 4.00 ms (1.29× faster; means of 3 and 3 runs)."),
        "{text}"
    );
    assert!(text.contains("runs before") && text.contains("3.99 ms to 4.01 ms"), "{text}");
    let document = sandbox.json(&[&["diff", "--json"], &faster[..]].concat());
    let step = &document["comparison"]["step_ns"];
    assert_eq!((&step["significant"], step["runs"][0].as_array().unwrap().len()), (&json!(true), 3));
    assert_eq!(document["before"], json!(["a1", "a2", "a3"]));
    let noisy = sides("c");
    let noisy: Vec<&str> = noisy.iter().map(String::as_str).collect();
    assert!(
        unwrapped(&page(&sandbox, 200, &noisy))
            .contains("the difference is not significant (means of 3 and 3 runs)")
    );
}

#[test]
fn exit_codes_are_exact() {
    let sandbox = Sandbox::new();
    steps(&sandbox, "before", 128, 3_000_000);
    steps(&sandbox, "after", 128, 4_000_000);
    let code = |arguments: &[&str], code: i32| {
        text(&output(&mut sandbox.apex(&[&["diff"], arguments].concat()), code).stderr)
    };
    let said = code(&["--fail-above", "10", "before", "after"], 1);
    assert!(said.contains("a step is slower: 125% of its time before"), "{said}");
    assert!(said.contains("forward is slower: 133% of its time before"), "{said}");
    code(&["--fail-above", "10", "after", "before"], 0);
    code(&["--fail-above", "50", "before", "after"], 0);
    for wrong in [
        &[][..],
        &["before"],
        &["before", "after", "before"],
        &["--before", "before"],
        &["--after", "after"],
        &["--before", "before", "--after"],
        &["before", "after", "--after", "after", "--before", "before"],
    ] {
        code(wrong, 2);
    }
    code(&["before", "nowhere"], 125);
}

#[test]
fn without_a_gpu_counts_are_compared() {
    let sandbox = Sandbox::new();
    for (session, count) in [("before", "30"), ("after", "50")] {
        let mut command = sandbox.apex(&["run", "--device", "cpu", "-q", "-o", session, "--"]);
        output(command.arg(program()).args(["launch", count]), 0);
    }
    let text = page(&sandbox, 100, &["before", "after"]);
    let first = text.lines().next().unwrap();
    assert!(
        first.contains("instead of") && first.contains("1.67× more, counted by the CPU device"),
        "{text}"
    );
    assert!(text.contains("30 → 50") && text.contains("sectorsᶜ") && text.contains("nothing"), "{text}");
    // One run of a busy host says nothing about the next.
    assert!(
        !text.contains("GPU time") && text.contains("Times are not compared: on the CPU device"),
        "{text}"
    );
    assert!(unwrapped(&text).contains("The commands differ: `") && text.contains("launch 50`."), "{text}");
    let document = sandbox.json(&["diff", "--json", "before", "after"]);
    assert!(document["commands"][0][0].as_str().unwrap().ends_with("launch 30"), "{}", document["commands"]);
    let comparison = &document["comparison"];
    for time in ["span_ns", "gpu_time_ns", "launch_cpu_ns"] {
        assert_eq!(comparison[time]["significant"], Value::Null, "{time}");
    }
    assert_eq!(comparison["on_cpu_device"], json!(true));
    let launches = ["before", "after"].map(|side| comparison["launches"][side]["value"].as_f64());
    assert_eq!((launches, &comparison["per"]), ([Some(30.0), Some(50.0)], &json!("run")));
    assert_eq!(comparison["step_ns"], Value::Null);
    let same = page(&sandbox, 100, &["before", "before"]);
    assert!(same.starts_with("The CPU device counts the same"), "{same}");
    assert!(!same.contains("The commands differ"), "{same}");
    let repeated = ["--before", "before", "before", "--after", "after", "after"];
    assert!(page(&sandbox, 100, &repeated).contains("GPU time"), "repeated runs show what is chance");
}
