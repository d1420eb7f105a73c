//! `apex check` holds runs to budgets: exact on the CPU device, with an exit code for CI.

use crate::common::{APEX, Sandbox, output, program, text};
use std::path::{Path, PathBuf};

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

#[test]
fn a_run_counts_once_and_runs_of_different_programs_are_not_mixed() {
    let sandbox = Sandbox::new();
    record(&sandbox, "run", "2");
    let init = output(&mut sandbox.apex(&["check", "--init", "run", "./run/"]), 0);
    assert!(text(&init.stderr).contains("./run/ is the same run as run"), "{}", text(&init.stderr));
    let twice = output(&mut sandbox.apex(&["check", "run", "run"]), 0);
    assert!(text(&twice.stdout).contains("over 1 run."), "{}", text(&twice.stdout));

    record(&sandbox, "longer", "3");
    let file = std::fs::read_to_string(sandbox.path("apex-budgets.toml")).unwrap();
    let again = output(&mut sandbox.apex(&["check", "--init", "run", "longer"]), 125);
    let why = "apex-budgets.toml already has limits for runs on the CPU device: replace them with --force";
    assert!(text(&again.stderr).contains(why), "{}", text(&again.stderr));
    assert_eq!(std::fs::read_to_string(sandbox.path("apex-budgets.toml")).unwrap(), file);
    let differ = output(&mut sandbox.apex(&["check", "--init", "--force", "run", "longer"]), 0);
    assert!(text(&differ.stderr).contains("have different arguments"), "{}", text(&differ.stderr));
    output(&mut sandbox.apex(&["demo", "saxpy", "--device", "cpu", "-o", "other"]), 0);
    for command in [&["check", "--init", "run", "other"][..], &["check", "run", "other"]] {
        let refused = output(&mut sandbox.apex(command), 125);
        let said = text(&refused.stderr);
        assert!(said.contains("run and other are runs of different programs"), "{said}");
    }
}

#[test]
fn figures_are_printed_without_a_file_of_budgets() {
    let sandbox = Sandbox::new();
    record(&sandbox, "run", "3");
    let figures = output(&mut sandbox.apex(&["check", "--figures", "--per", "run", "run"]), 0);
    let figures: serde_json::Value = serde_json::from_slice(&figures.stdout).unwrap();
    let run = &figures["runs"][0];
    assert_eq!((&run["device"], &run["per"]), (&"cpu".into(), &"run".into()));
    assert_eq!(run["figures"]["launches"], 3.0);
    assert_eq!(run["kernels"][0]["figures"]["launches"], 3.0);
    let steps = output(&mut sandbox.apex(&["check", "--figures", "--per", "step", "run"]), 125);
    assert!(text(&steps.stderr).contains("run has no steps"), "{}", text(&steps.stderr));
}

#[test]
fn a_history_tells_at_which_commit_a_figure_changed() {
    let sandbox = Sandbox::new();
    let none = output(&mut sandbox.apex(&["history"]), 125);
    assert!(text(&none.stderr).contains("there is no apex-history.jsonl"), "{}", text(&none.stderr));
    for (name, launches) in [("first", "3"), ("second", "4")] {
        record(&sandbox, name, launches);
        output(&mut sandbox.apex(&["history", "add", "--commit", name, "--program", "test", name]), 0);
    }
    let told = output(&mut sandbox.apex(&["history"]), 0);
    let told = text(&told.stdout);
    assert!(told.contains("test: launches worse, +33.3%, from commit second on"), "{told}");
    let document = output(&mut sandbox.apex(&["history", "--json", "--html", "page.html"]), 0);
    let document: serde_json::Value = serde_json::from_slice(&document.stdout).unwrap();
    assert_eq!(document["runs"], 2);
    let page = std::fs::read_to_string(sandbox.path("page.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("worse: +33.3% at second"), "{page}");
    let markdown = output(&mut sandbox.apex(&["history", "--days", "2", "--format", "markdown"]), 0);
    assert!(text(&markdown.stdout).contains("| **worse** | test (CPU device) | launches |"));
    // An editor may leave the last line without its end.
    let lines = std::fs::read_to_string(sandbox.path("apex-history.jsonl")).unwrap();
    std::fs::write(sandbox.path("apex-history.jsonl"), lines.trim_end()).unwrap();
    output(&mut sandbox.apex(&["history", "add", "--commit", "late", "--program", "again", "first"]), 0);
    output(&mut sandbox.apex(&["history"]), 0);
    // A run that is there counts once, at whichever commit it is added again.
    let added = ["history", "add", "--commit", "later", "--program", "test", "first", "second"];
    let twice = text(&output(&mut sandbox.apex(&added), 0).stderr);
    assert!(
        twice.contains("first is in apex-history.jsonl already, at commit first: it counts once"),
        "{twice}"
    );
    assert!(twice.contains("added 0 runs"), "{twice}");
    let nameless = output(&mut sandbox.apex(&["history", "add", "--commit", "", "first"]), 2);
    assert!(text(&nameless.stderr).contains("it is empty"), "{}", text(&nameless.stderr));
    std::fs::write(sandbox.path("apex-history.jsonl"), "{}\n").unwrap();
    let refused = output(&mut sandbox.apex(&["history", "add", "--commit", "x", "first"]), 125);
    assert!(text(&refused.stderr).contains("line 1: "), "{}", text(&refused.stderr));
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A shell's command that finds `apex`.
fn shell(sandbox: &Sandbox) -> test_process::Command {
    let mut bash = sandbox.command("bash");
    let folders = Path::new(APEX).parent().into_iter().map(Path::to_path_buf);
    let before = std::env::var_os("PATH").unwrap_or_default();
    bash.env("PATH", std::env::join_paths(folders.chain(std::env::split_paths(&before))).unwrap());
    bash
}

#[test]
fn the_hook_holds_a_command_to_the_budgets() {
    let sandbox = Sandbox::new();
    record(&sandbox, "run", "2");
    let hook = |words: &[&str], code| {
        let mut bash = shell(&sandbox);
        let done = output(bash.arg(repository().join("contrib/ci/pre-commit.sh")).args(words), code);
        text(&done.stdout) + &text(&done.stderr)
    };
    let program = program();
    let program = program.to_str().unwrap();
    assert!(hook(&[program, "launch", "2"], 125).contains("write one from runs"));
    output(&mut sandbox.apex(&["check", "--init", "run"]), 0);
    assert!(hook(&[program, "launch", "2"], 0).starts_with("All "));
    assert!(hook(&[program, "launch", "3"], 1).starts_with("launches is 3"));
    assert!(hook(&[program, "run", "race"], 1).contains("shared-race in kernel race"));
    assert!(hook(&[], 125).contains("name the command"));
    hook(&["false"], 1);
}

/// The commands of a step of `action.yml`.
fn step(name: &str) -> String {
    let text = std::fs::read_to_string(repository().join("action.yml")).unwrap();
    let (_, step) = text.split_once(&format!("- name: {name}\n")).expect("the step");
    let (_, lines) = step.split_once("      run: |\n").expect("its commands");
    let lines = lines.lines().map_while(|line| line.strip_prefix("        "));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_steps_of_the_action_record_and_check() {
    let sandbox = Sandbox::new();
    record(&sandbox, "run", "2");
    output(&mut sandbox.apex(&["check", "--init", "run"]), 0);
    let run_with = |name: &str, session: &str, launches: &str, budgets: &str, code| {
        let mut bash = shell(&sandbox);
        bash.args(["--noprofile", "--norc", "-eo", "pipefail", "-c", &step(name)]);
        bash.env("CHECK_RUN", format!("'{}' launch {launches}", program().display()));
        bash.env("CHECK_SESSION", session).env("CHECK_SESSIONS", session).env("CHECK_DEVICE", "cpu");
        bash.env("CHECK_BUDGETS", budgets).env("CHECK_HISTORY", "history.jsonl");
        bash.env("GITHUB_SHA", "a-commit").env("GITHUB_OUTPUT", sandbox.path("output"));
        text(&output(bash.env("GITHUB_STEP_SUMMARY", sandbox.path("summary")), code).stdout)
    };
    let run = |name: &str, session: &str, launches: &str, code| {
        run_with(name, session, launches, "apex-budgets.toml", code)
    };
    run("Record", "same", "2", 0);
    assert_eq!(run("Check", "same", "2", 0), "");
    run("Record", "one more", "3", 0);
    let annotations = run("Check", "one more", "3", 1);
    assert!(annotations.starts_with("::error title=apex check one more::launches is 3"), "{annotations}");
    let read = |name: &str| std::fs::read_to_string(sandbox.path(name)).unwrap();
    assert_eq!(read("output"), "kept=true\nkept=false\n");
    assert!(read("summary").contains("| **not kept** | launches | 3 | 2 |"));
    let history = read("history.jsonl");
    assert_eq!(history.lines().filter(|line| line.contains("a-commit")).count(), 2);
    let name = program().file_name().unwrap().to_string_lossy().into_owned();
    assert!(history.contains(&format!("\"name\":\"{name}\"")), "a shell is no program: {history}");
    // Several sessions, by blanks or by lines; and what cannot be judged is not kept.
    run("Check", "same run", "2", 0);
    run("Check", "same\none more\n", "2", 1);
    run("Check", "nowhere", "2", 125);
    run_with("Check", "same", "2", "none.toml", 125);
    assert!(
        read("output").ends_with("kept=true\nkept=false\nkept=false\nkept=false\n"),
        "{}",
        read("output")
    );
}
