//! `built/page.html` is what Vite makes of `web/`, and the lock file names no registry.

use std::path::{Path, PathBuf};
use test_process::Command;

fn web() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("web")
}

/// What `scripts/test-deps.sh` installs; without it, `None`, and a line that says that `test` is
/// skipped.
fn tool(test: &str, script: &str) -> Option<Command> {
    let script = web().join("node_modules").join(script);
    if Command::new("node").arg("--version").output().is_err() {
        test_skip::missing_dependency(format!("{test} needs Node.js"));
        return None;
    }
    if !script.exists() {
        test_skip::missing_dependency(format!("{test} needs {}", script.display()));
        return None;
    }
    let mut command = Command::new("node");
    command.arg(script).current_dir(web());
    Some(command)
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}: {}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn the_built_page_is_the_sources() {
    let Some(mut vite) = tool("the_built_page_is_the_sources", "vite/bin/vite.js") else { return };
    let folder = tempfile::tempdir().unwrap();
    run(vite.arg("build").env("APEX_PAGE_OUT", folder.path()));
    let built = std::fs::read(folder.path().join("page.html")).unwrap();
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("built/page.html");
    assert!(
        built == std::fs::read(&committed).unwrap(),
        "{} is not what web/ makes: `npm run build` there makes it anew",
        committed.display()
    );
}

#[test]
fn the_pages_types_hold() {
    let Some(mut check) = tool("the_pages_types_hold", "svelte-check/bin/svelte-check") else { return };
    run(check.args(["--tsconfig", "./tsconfig.json", "--fail-on-warnings"]));
}

#[test]
fn the_timelines_parts_hold() {
    // (Vite makes TypeScript what Node.js can run.)
    let Some(_) = tool("the_timelines_parts_hold", "vite/bin/vite.js") else { return };
    run(Command::new("node").arg("tests/timeline.mjs").current_dir(web()));
}

#[test]
fn the_parts_of_a_kernels_page_hold() {
    let Some(_) = tool("the_parts_of_a_kernels_page_hold", "vite/bin/vite.js") else { return };
    run(Command::new("node").arg("tests/parts.mjs").current_dir(web()));
}

#[test]
fn the_lock_file_names_no_registry() {
    let lock = std::fs::read_to_string(web().join("package-lock.json")).unwrap();
    assert!(!lock.contains("\"resolved\""), "package-lock.json names where packages were fetched from");
}
