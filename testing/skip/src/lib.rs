//! How tests say that they could not run.
//!
//! The test harness has no word for a skipped test and hides what a passing test prints, so a test
//! that returns early looks like one that ran. A test that cannot run calls one of the two
//! functions here and returns. The line that they print is seen in every run, since it does not
//! pass through the harness.
//!
//! - [`REQUIRE`]: where this variable is set, as in CI, a missing dependency is a failure.
//! - [`LIST`]: where this variable names a file, each skipped test adds a line, so that a run can
//!   end with their number.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;

/// Variable that makes a missing dependency a failure.
pub const REQUIRE: &str = "APEX_TESTS_REQUIRE_DEPENDENCIES";

/// Variable that names the file which lists the skipped tests.
pub const LIST: &str = "APEX_SKIPPED_TESTS";

/// Reports that the calling test is skipped for lack of something that `scripts/test-deps.sh`
/// installs.
///
/// # Panics
/// If [`REQUIRE`] is set: this run was to have everything.
pub fn missing_dependency(what: impl Display) {
    let line = line(&format!("{what}; scripts/test-deps.sh installs it"));
    assert!(std::env::var_os(REQUIRE).is_none(), "{REQUIRE} is set, but this test was {line}");
    report(&line);
}

/// Reports that the calling test is skipped because this machine or this user cannot run it.
pub fn impossible_here(why: impl Display) {
    report(&line(&why.to_string()));
}

/// The harness names each test's thread after the test.
fn line(why: &str) -> String {
    let thread = std::thread::current();
    format!("skipped: {}: {why}", thread.name().unwrap_or("a thread of a test"))
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
    use std::process::Output;
    use test_process::Command;

    /// Runs `name`, a test of this file that is ignored otherwise, with one variable set.
    fn child(name: &str, variable: &str, value: &std::path::Path) -> Output {
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
    fn a_skipped_test_is_listed_and_seen() {
        let folder = std::env::temp_dir().join(format!("test-skip-{}", std::process::id()));
        for (test, why) in [("lacks_a_dependency", "no abacus"), ("cannot_run", "no moon")] {
            let output = child(test, LIST, &folder);
            assert!(output.status.success());
            let expected = format!("skipped: tests::{test}: {why}");
            assert!(String::from_utf8_lossy(&output.stderr).contains(&expected));
            assert!(std::fs::read_to_string(&folder).unwrap().contains(&expected));
        }
        assert_eq!(std::fs::read_to_string(&folder).unwrap().lines().count(), 2);
        std::fs::remove_file(folder).unwrap();
    }

    #[test]
    fn a_missing_dependency_fails_where_dependencies_are_required() {
        assert!(!child("lacks_a_dependency", REQUIRE, "1".as_ref()).status.success());
        assert!(child("cannot_run", REQUIRE, "1".as_ref()).status.success());
    }
}
