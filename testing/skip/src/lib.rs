//! The way in which tests report that they could not run, and the settings under which that is a
//! failure.
//!
//! The test harness has no word for a skipped test and hides what a passing test prints, so a test
//! that returns early looks like one that ran. A test that cannot run calls one of the two
//! functions here and returns. The line that they print is seen in every run, since it does not
//! pass through the harness.
//!
//! - [`REQUIRE`]: where this variable is set, as in CI, a missing dependency is a failure, and so
//!   is any other reason unless `allowed.txt` lists the test.
//! - [`LIST`]: where this variable names a file, each skipped test adds a line, so that a run can
//!   end with their number.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;

/// Variable that makes a skipped test a failure.
pub const REQUIRE: &str = "APEX_TESTS_REQUIRE_DEPENDENCIES";

/// Variable that names the file which lists the skipped tests.
pub const LIST: &str = "APEX_SKIPPED_TESTS";

/// Tests that may be skipped where [`REQUIRE`] is set.
const ALLOWED: &str = include_str!("../allowed.txt");

/// Reports that the calling test is skipped for lack of something that `scripts/test-deps.sh`
/// installs.
///
/// # Panics
/// If [`REQUIRE`] is set: this run was to have everything.
pub fn missing_dependency(what: impl Display) {
    let line = line(&current_test(), &format!("{what}; scripts/test-deps.sh installs it"));
    assert!(std::env::var_os(REQUIRE).is_none(), "{REQUIRE} is set, but this test was {line}");
    report(&line);
}

/// Reports that the calling test is skipped because this machine or this user cannot run it.
///
/// # Panics
/// If [`REQUIRE`] is set and `testing/skip/allowed.txt` does not list the test.
pub fn impossible_here(why: impl Display) {
    let test = current_test();
    let line = line(&test, &why.to_string());
    assert!(
        std::env::var_os(REQUIRE).is_none() || allowed().any(|allowed| allowed == test),
        "{REQUIRE} is set, and testing/skip/allowed.txt does not list this test, which was {line}"
    );
    report(&line);
}

/// Tests that may be skipped.
fn allowed() -> impl Iterator<Item = &'static str> {
    ALLOWED.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The binary and the name of the calling test: the harness names each test's thread after it.
fn current_test() -> String {
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // Cargo appends a hash.
    let binary = program.rsplit_once('-').map_or(program.as_str(), |(binary, _)| binary);
    let thread = std::thread::current();
    format!("{binary} {}", thread.name().unwrap_or("a thread of a test"))
}

fn line(test: &str, why: &str) -> String {
    format!("skipped: {test}: {why}")
}

fn report(line: &str) {
    // `eprintln!` would be captured. A closed stderr does not fail the test.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
    if let Some(list) = std::env::var_os(LIST) {
        let file = OpenOptions::new().create(true).append(true).open(&list);
        // One write to a file opened for appending: lines of tests that run at the same time do not
        // mix.
        let written = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        written.unwrap_or_else(|error| panic!("{LIST} names {}: {error}", list.display()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::Output;
    use test_process::Command;

    /// Runs `name`, a test of this file that is ignored otherwise, with one variable set.
    fn child(name: &str, variable: &str, value: &Path) -> Output {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("tests::{name}"), "--ignored"])
            .env_remove(REQUIRE)
            .env_remove(LIST)
            .env(variable, value)
            .output()
            .unwrap()
    }

    #[test]
    #[ignore = "run by the tests below"]
    fn lacks_a_dependency() {
        missing_dependency("no abacus");
    }

    #[test]
    #[ignore = "run by the tests below"]
    fn cannot_run() {
        impossible_here("no moon");
    }

    #[test]
    #[ignore = "run by the tests below, listed in allowed.txt"]
    fn may_be_skipped() {
        impossible_here("no sun");
    }

    #[test]
    fn a_skipped_test_is_listed_and_seen() {
        let folder = std::env::temp_dir().join(format!("test-skip-{}", std::process::id()));
        let skipped =
            [("lacks_a_dependency", "no abacus"), ("cannot_run", "no moon"), ("may_be_skipped", "no sun")];
        for (test, why) in skipped {
            let output = child(test, LIST, &folder);
            assert!(output.status.success());
            let expected = format!("skipped: test_skip tests::{test}: {why}");
            assert!(String::from_utf8_lossy(&output.stderr).contains(&expected));
            assert!(std::fs::read_to_string(&folder).unwrap().contains(&expected));
        }
        assert_eq!(std::fs::read_to_string(&folder).unwrap().lines().count(), 3);
        std::fs::remove_file(folder).unwrap();
    }

    #[test]
    fn where_dependencies_are_required_only_listed_tests_are_skipped() {
        let failure = |test| {
            let output = child(test, REQUIRE, "1".as_ref());
            (!output.status.success()).then(|| String::from_utf8_lossy(&output.stdout).into_owned())
        };
        assert!(failure("lacks_a_dependency").unwrap().contains("scripts/test-deps.sh installs it"));
        assert!(failure("cannot_run").unwrap().contains("testing/skip/allowed.txt does not list"));
        assert_eq!(failure("may_be_skipped"), None);
    }

    /// Whether a source file below `folder` declares this function.
    fn declares(folder: &Path, function: &str) -> bool {
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).any(|path| {
            let name = path.file_name().unwrap_or_default();
            if path.is_dir() {
                return name != "target" && name != "node_modules" && declares(&path, function);
            }
            let is_source = path.extension().is_some_and(|extension| extension == "rs");
            is_source && std::fs::read_to_string(&path).unwrap().contains(&format!("fn {function}("))
        })
    }

    #[test]
    fn the_list_names_only_tests_that_there_are() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for test in allowed() {
            let function = test.rsplit([' ', ':']).next().unwrap();
            let found = ["crates", "fpga", "testing", "xtask"]
                .iter()
                .any(|folder| declares(&root.join(folder), function));
            assert!(found, "allowed.txt names {test}, which does not exist");
        }
    }
}
