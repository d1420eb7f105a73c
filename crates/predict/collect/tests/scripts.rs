//! `scripts/gpu/pytorch_rows.py` writes tables that this crate reads: same columns, same metrics.

use apex_dataset::{Columns, KernelRow, LaunchRow};
use std::path::Path;
use test_process::Command;

/// A list of names that the script defines, or nothing where there is no Python.
fn names(list: &str) -> Option<Vec<String>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scripts/gpu/pytorch_rows.py");
    let program = format!("import runpy; print(*runpy.run_path({script:?})[{list:?}], sep='\\n')");
    let output = Command::new("python3").args(["-B", "-c", &program]).output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

fn columns<T: Columns>() -> Vec<String> {
    let mut names = Vec::new();
    T::names("", &mut names);
    names
}

#[test]
fn the_rows_of_pytorch_have_the_columns_and_metrics_of_a_collection() {
    let Some(kernels) = names("KERNELS") else {
        return test_skip::missing_dependency("no python3");
    };
    assert_eq!(kernels, columns::<KernelRow>());
    assert_eq!(names("LAUNCHES").unwrap(), columns::<LaunchRow>());
    assert_eq!(names("METRICS").unwrap()[..apex_collect::ncu::METRICS.len()], apex_collect::ncu::METRICS);
}
