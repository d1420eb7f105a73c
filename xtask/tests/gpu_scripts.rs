//! Shared parts of the scripts of `scripts/gpu` that need no GPU: order statistics in C, and
//! confidence intervals in Python.

use proptest::prelude::*;
use std::path::Path;
use std::sync::OnceLock;
use test_process::Command;

/// Prints the quantiles 0.1, 0.5, 0.9, 0.99 and the mean of its arguments in one `printf`, as the
/// programs do.
const PROGRAM: &str = r#"
#include "statistics.h"
#include <stdio.h>
int main(int argc, char **argv) {
  static double v[1000];
  for (int i = 1; i < argc; i++) v[i - 1] = atof(argv[i]);
  Sorted s = sorted(v, argc - 1);
  printf("%.17g %.17g %.17g %.17g %.17g\n", quantile(s, 0.1), quantile(s, 0.5), quantile(s, 0.9), quantile(s, 0.99), mean(s));
}
"#;

/// The program above, compiled by the linker driver that Rust itself needs.
fn program() -> &'static Path {
    static BUILT: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("statistics.c");
        std::fs::write(&source, PROGRAM).unwrap();
        let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/gpu/programs");
        let compiled = Command::new("cc")
            .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-I"])
            .arg(headers)
            .arg(&source)
            .arg("-o")
            .arg(folder.path().join("statistics"))
            .output()
            .expect("cc, with which Rust links");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        folder
    });
    Box::leak(folder.path().join("statistics").into_boxed_path())
}

fn printed(values: &[f64]) -> Vec<f64> {
    let output = Command::new(program()).args(values.iter().map(f64::to_string)).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().split_whitespace().map(|word| word.parse().unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn quantiles_are_those_of_the_sorted_sample(values in prop::collection::vec(0.0f64..1e6, 1..300)) {
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |q: f64| sorted[(q * (sorted.len() - 1) as f64 + 0.5) as usize];
        let printed = printed(&values);
        prop_assert_eq!(&printed[..4], [at(0.1), at(0.5), at(0.9), at(0.99)]);
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        prop_assert!((printed[4] - mean).abs() <= 1e-9 * mean.abs());
    }
}

#[test]
fn intervals_of_the_scripts_are_right() {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/gpu");
    let output = Command::new("python3")
        .args(["-B", "-m", "unittest", "test_bench"])
        .current_dir(scripts)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
