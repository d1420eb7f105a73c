//! Pages that show predictions show what the shipped models predict.
//!
//! The table of `docs/results/predict-h200.md` stands between marks and is what the named script
//! prints with the command under test. Its last digit may differ by one: instruction sets round
//! differently. `BLESS=1` writes the table anew.

use crate::common::APEX;
use std::path::{Path, PathBuf};
use test_process::Command;

const OPEN: &str =
    "<!-- predictions: scripts/gpu/predict_check.py compare data/h200/programs/bundled-kernels.csv -->\n";
const CLOSE: &str = "\n<!-- end of predictions -->";

#[test]
fn the_page_of_predictions_shows_what_the_models_predict() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page_path = root.join("docs/results/predict-h200.md");
    let page = std::fs::read_to_string(&page_path).unwrap();
    let (before, rest) = page.split_once(OPEN).expect("the page has the opening mark");
    let (shown, after) = rest.split_once(CLOSE).expect("the page has the closing mark");
    let Some(printed) = compared(&root) else { return };
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&page_path, format!("{before}{OPEN}{printed}{CLOSE}{after}")).unwrap();
        return;
    }
    assert_eq!(shown.lines().count(), printed.lines().count(), "{printed}");
    for (shown, printed) in shown.lines().zip(printed.lines()) {
        assert!(
            alike(shown, printed),
            "the page has\n{shown}\nthe models predict\n{printed}\nBLESS=1 writes it anew"
        );
    }
}

/// Returns the output of the script, or nothing if there is no Python.
fn compared(root: &Path) -> Option<String> {
    let installed = root.join("target/test-deps/python/bin/python");
    let python = [installed, PathBuf::from("python3")].into_iter().find(|python| {
        Command::new(python)
            .args(["-c", "import statistics; statistics.correlation"])
            .output()
            .is_ok_and(|o| o.status.success())
    });
    let Some(python) = python else {
        test_skip::missing_dependency("no Python 3.10 or later");
        return None;
    };
    let output = Command::new(python)
        .args(["-B", "scripts/gpu/predict_check.py", "compare", "data/h200/programs/bundled-kernels.csv"])
        .current_dir(root)
        .env("APEX_BIN", Path::new(APEX).parent().unwrap())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap().trim_end().to_owned())
}

/// Whether two lines have the same words, and numbers that differ by one in the last digit at most.
fn alike(one: &str, other: &str) -> bool {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let (one, other) = (words(one), words(other));
    let near = |(one, other): (&String, &String)| {
        let number = |word: &str| word.trim_end_matches('.').parse::<f64>();
        let digits = one.trim_end_matches('.').split_once('.').map_or(0, |(_, digits)| digits.len() as i32);
        match (number(one), number(other)) {
            (Ok(a), Ok(b)) => (a - b).abs() <= 1.01 * 10f64.powi(-digits) && (digits > 0 || a == b),
            _ => one == other,
        }
    };
    one.len() == other.len() && one.iter().zip(&other).all(near)
}
