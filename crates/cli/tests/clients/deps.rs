//! The clients that `scripts/test-deps.sh` has installed for these tests.

use std::path::{Path, PathBuf};

/// A file below the folder of what is installed; without it, `None`, and a line that says that
/// `test` is skipped.
pub fn find(test: &str, file: &str) -> Option<PathBuf> {
    let found = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-deps").join(file);
    let exists = found.exists();
    if !exists {
        test_skip::missing_dependency(format!("{test} needs {}", found.display()));
    }
    exists.then_some(found)
}

/// A file of an installed Python package.
pub fn find_package(test: &str, file: &str) -> Option<PathBuf> {
    let versions = find(test, "python/lib")?;
    let version = std::fs::read_dir(versions).unwrap().next()?.unwrap().file_name();
    find(test, &format!("python/lib/{}/site-packages/{file}", version.display()))
}
