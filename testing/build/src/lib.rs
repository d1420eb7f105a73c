//! Builds the programs and libraries that tests run or inject, and says where they are.
//!
//! A test cannot depend on another package's program, and cargo does not build one for it. So a
//! test that needs one has cargo build that package, beside the test itself: into the same target
//! folder, in the same profile. Nothing has to be built beforehand, so `cargo test -p PACKAGE`,
//! `cargo test --workspace` and cargo-nextest find the same files.
//!
//! What the package uses is compiled with the features that [`ALL`] gives it, which are those of
//! `cargo test --workspace`: nothing is compiled twice there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use test_process::Command;

/// The package that uses nearly all others. It is selected beside the one that is wanted, of which
/// alone a target is built.
const ALL: &str = "apex-cli";

/// The program of a package that is named like the package.
///
/// # Panics
/// If it cannot be built.
pub fn program(package: &str) -> PathBuf {
    built(package, &["--bin", package]).join(package)
}

/// The shared library of a package that is named like the package.
///
/// # Panics
/// If it cannot be built.
pub fn library(package: &str) -> PathBuf {
    built(package, &["--lib"]).join(format!("lib{}.so", package.replace('-', "_")))
}

/// Builds a target of a package of this workspace, once in a process, and gives the folder of its
/// files.
fn built(package: &str, target_of_it: &[&str]) -> PathBuf {
    static BUILT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let test = std::env::current_exe().expect("a test has a path");
    let folder = test.parent().and_then(Path::parent).expect("a test lies in TARGET/PROFILE/deps");
    let (target, profile) = (folder.parent(), folder.file_name().and_then(|name| name.to_str()));
    let (target, profile) = (target.expect("a target folder"), profile.expect("a profile"));
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if !built.contains(package) {
        let profile = if profile == "debug" { "dev" } else { profile };
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", package, "--package", ALL])
            .args(target_of_it)
            .args(["--profile", profile, "--target-dir"])
            .arg(target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .limit(test_process::BUILD_LIMIT)
            .status()
            .expect("cargo starts: it built this test");
        assert!(status.success(), "cargo could not build {package}");
        built.insert(package.to_owned());
    }
    folder.to_owned()
}
