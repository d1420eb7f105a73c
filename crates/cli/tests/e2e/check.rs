//! `apex check` holds runs to budgets: exact on the CPU device, with an exit code for CI.

use crate::common::{Sandbox, output, program, text};

/// Records launches of a kernel on the CPU device.
fn record(sandbox: &Sandbox, name: &str, launches: &str) {
    let mut run = sandbox.apex(&["run", "--device", "cpu", "-o", name, "--"]);
    output(run.arg(program()).args(["launch", launches]), 0);
}

#[test]
fn a_run_keeps_the_budgets_that_were_written_from_one_like_it_and_another_launch_is_found() {
    let sandbox = Sandbox::new();
    for (name, launches) in [("first", "3"), ("same", "3"), ("more", "4")] {
        record(&sandbox, name, launches);
    }
    let none = output(&mut sandbox.apex(&["check", "same"]), 125);
    assert!(
        text(&none.stderr).contains("there is no apex-budgets.toml: write one"),
        "{}",
        text(&none.stderr)
    );
    let init = output(&mut sandbox.apex(&["check", "--init", "first"]), 0);
    assert!(
        text(&init.stderr).contains("for runs on the CPU device into apex-budgets.toml"),
        "{}",
        text(&init.stderr)
    );
    let kept = output(&mut sandbox.apex(&["check", "same"]), 0);
    assert!(text(&kept.stdout).starts_with("All "), "{}", text(&kept.stdout));
    let exceeded = output(&mut sandbox.apex(&["check", "same", "more"]), 1);
    let told = text(&exceeded.stdout);
    assert!(told.starts_with("launches is 4 (+33.3%), but must be at most 3, and "), "{told}");
    let github = output(&mut sandbox.apex(&["check", "--format", "github", "more"]), 1);
    assert!(
        text(&github.stdout).starts_with("::error title=apex check more::launches is 4"),
        "{}",
        text(&github.stdout)
    );
    let junit = output(&mut sandbox.apex(&["check", "--format", "junit", "same"]), 0);
    assert!(text(&junit.stdout).contains("failures=\"0\""), "{}", text(&junit.stdout));
    let document = output(&mut sandbox.apex(&["check", "--json", "more"]), 1);
    let document: serde_json::Value = serde_json::from_slice(&document.stdout).unwrap();
    assert_eq!((&document["kept"], &document["device"]), (&false.into(), &"cpu".into()));
}

#[test]
fn what_cannot_be_judged_is_refused_with_what_to_do() {
    let sandbox = Sandbox::new();
    record(&sandbox, "run", "2");
    let mut nothing = sandbox.apex(&["run", "--device", "cpu", "-o", "nothing", "--", "true"]);
    output(&mut nothing, 0);
    let refused = |arguments: &[&str], why: &str| {
        let refused = output(&mut sandbox.apex(arguments), 125);
        assert!(text(&refused.stderr).contains(why), "{arguments:?}: {}", text(&refused.stderr));
    };
    for (file, content, why) in [
        ("gpu.toml", "schema = \"apex.budgets/1\"\n", "has no limits for runs on the CPU device"),
        (
            "step.toml",
            "schema = \"apex.budgets/1\"\n[cpu]\nper = \"step\"\n[cpu.limits]\nlaunches = 1\n",
            "are of a step, but this run",
        ),
        (
            "typo.toml",
            "schema = \"apex.budgets/1\"\n[cpu]\nper = \"run\"\n[cpu.limits]\nlaunch = 1\n",
            "there is no `launch`",
        ),
        ("form.toml", "launches = \n", "cannot use form.toml"),
    ] {
        std::fs::write(sandbox.path(file), content).unwrap();
        refused(&["check", "--budgets", file, "run"], why);
    }
    if sandbox.path("nothing").exists() {
        refused(&["check", "--budgets", "gpu.toml", "nothing"], "nothing");
    }
    refused(&["check", "--budgets", "gpu.toml", "nowhere"], "there is no session nowhere");
}
