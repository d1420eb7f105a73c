//! `apex report --html`: one file, and what a browser shows of it.

use crate::common::{Sandbox, h200_session, machine_file, output, text};
use std::path::{Path, PathBuf};
use test_process::Command;

/// A kernel whose name ends the element of the document and begins others.
pub const HOSTILE: &str =
    "</script><img src=x onerror=globalThis.pwned=1><svg onload=globalThis.pwned=2>&lt;b\u{202e}";

/// Sources of the page, with its tests.
fn web() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../show/page/web")
}

#[test]
fn a_page_is_one_file() {
    let sandbox = Sandbox::new();
    sandbox.recorded(&[], &["launch", "100"]);
    let written = output(&mut sandbox.apex(&["report", "--html", "report.html", "s"]), 0);
    assert_eq!(text(&written.stdout), "");
    // (Where the machine is busy, remarks on the times that were recorded come before it.)
    let said = text(&written.stderr);
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("apex: wrote report.html, ") && last.contains("KiB"), "{said}");
    let page = std::fs::read_to_string(sandbox.path("report.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.len() < 3_000_000);
    for word in ["src=\"http", "href=\"http", "url(http", "@import"] {
        assert!(!page.contains(word), "the page asks for more: {word}");
    }
    // A second one takes its place, as other outputs do; with --json the report is printed, too.
    let both = sandbox.json(&["report", "--html", "report.html", "--json", "s"]);
    assert_eq!(both["schema"], "apex.report/4");
    assert!(std::fs::read_dir(sandbox.path("")).unwrap().count() == 2, "nothing else is left");
    // The record of the session is no file to write to.
    let control = sandbox.path("s").join("control");
    let before = std::fs::read(&control).unwrap();
    let refused = output(&mut sandbox.apex(&["report", "--html", "s/control", "s"]), 125);
    assert!(text(&refused.stderr).contains("is a file of the session"), "{}", text(&refused.stderr));
    assert_eq!(std::fs::read(&control).unwrap(), before);
    let nowhere = output(&mut sandbox.apex(&["report", "--html", "no/folder.html", "s"]), 125);
    assert!(text(&nowhere.stderr).contains("cannot write no/folder.html"), "{}", text(&nowhere.stderr));
}

/// A script that opens pages in a browser; without what it needs, `None`, and a line that says
/// that the test is skipped.
pub fn browser(test: &str, script: &str) -> Option<Command> {
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !has("node") || !has("chromium") {
        test_skip::missing_dependency(format!("{test} needs Node.js and Chromium"));
        return None;
    }
    let installed = web().join("node_modules/playwright-core");
    if !installed.exists() {
        test_skip::missing_dependency(format!("{test} needs {}", installed.display()));
        return None;
    }
    let mut command = Command::new("node");
    command.arg(web().join("tests").join(script));
    Some(command)
}

#[test]
fn every_panel_shows_the_reports_numbers() {
    let Some(mut check) = browser("every_panel_shows_the_reports_numbers", "check.mjs") else { return };
    let sandbox = Sandbox::new();
    output(&mut sandbox.apex(&["demo", "-o", "cpu"]), 0);
    h200_session(&sandbox.path("hostile"), &[(HOSTILE, 64, 256, 20_000), ("tame", 3, 100, 5_000)]);
    machine_file(&sandbox.path("hostile"), HOSTILE);
    const RECORDED: [&str; 3] = ["torch-llama_eager", "ddp-ddp_slow_rank", "python-jax_eager"];
    for recorded in RECORDED {
        test_recorded::unpack(&test_recorded::archive(recorded), &sandbox.path(recorded)).unwrap();
    }
    for session in ["cpu", "hostile"].into_iter().chain(RECORDED) {
        let [page, report] = ["html", "json"].map(|ending| sandbox.path(&format!("{session}.{ending}")));
        let arguments = ["report", "--phase", "all", "--json", "--html"];
        let printed = output(sandbox.apex(&arguments).arg(&page).arg(session), 0);
        std::fs::write(&report, printed.stdout).unwrap();
        check.arg(page).arg(report);
    }
    output(&mut check, 0);
}
