//! Figures in the pages are what the committed raw data give.
//!
//! A page marks a generated part with the command that prints it, run in the repository's root:
//!
//! ```text
//! <!-- figures: scripts/gpu/overhead.py tables launch data/h200/overhead/launch.json -->
//! …
//! <!-- end of figures -->
//! ```
//!
//! The test runs each command and compares. `BLESS=1` writes what the commands print into the
//! pages.

use std::path::{Path, PathBuf};
use test_process::Command;

const OPEN: &str = "<!-- figures: ";
const CLOSE: &str = "<!-- end of figures -->";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A Python with NumPy: the one that `scripts/test-deps.sh` installs, else the user's.
fn python() -> Option<PathBuf> {
    let installed = root().join("target/test-deps/python/bin/python");
    [installed, PathBuf::from("python3")].into_iter().find(|python| {
        let output = Command::new(python).args(["-c", "import numpy"]).output();
        output.is_ok_and(|output| output.status.success())
    })
}

/// Adds the Markdown pages below a folder, but for build output and hidden folders.
fn find_pages(folder: &Path, pages: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name());
        let skipped = name == "target" || name.as_encoded_bytes().starts_with(b".");
        if entry.file_type().unwrap().is_dir() && !skipped {
            find_pages(&path, pages);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
}

/// The page with each marked part as its command prints it.
fn renewed(python: &Path, page: &str, name: &str) -> String {
    let mut parts = page.split(OPEN);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (command, rest) = part.split_once(" -->").unwrap_or_else(|| panic!("{name}: an open mark"));
        let (_, after) = rest.split_once(CLOSE).unwrap_or_else(|| panic!("{name}: no end of `{command}`"));
        let output = Command::new(python)
            .arg("-B")
            .args(command.split_whitespace())
            .current_dir(root())
            .output()
            .expect("python runs");
        assert!(output.status.success(), "{name}: {command}: {}", String::from_utf8_lossy(&output.stderr));
        let printed = String::from_utf8(output.stdout).expect("a page is UTF-8");
        text += &format!("{OPEN}{command} -->\n{}\n{CLOSE}{after}", printed.trim_end());
    }
    text
}

#[test]
fn pages_show_what_the_raw_data_give() {
    let Some(python) = python() else {
        test_skip::missing_dependency("no Python with NumPy");
        return;
    };
    let (mut marked, mut different, mut pages) = (0, Vec::new(), Vec::new());
    find_pages(&root(), &mut pages);
    for path in pages {
        let page = std::fs::read_to_string(&path).unwrap();
        marked += page.matches(OPEN).count();
        let renewed = renewed(&python, &page, &path.display().to_string());
        if renewed != page {
            different.push(path.display().to_string());
            if std::env::var_os("BLESS").is_some() {
                std::fs::write(&path, renewed).unwrap();
            }
        }
    }
    assert!(marked > 0, "no page has marked figures");
    assert!(different.is_empty(), "out of date; BLESS=1 renews them: {different:#?}");
}
