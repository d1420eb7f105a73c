//! The checked-in PTX belongs to the checked-in CUDA C++. (`scripts/ptx.sh --check` compiles anew to compare.)

use std::fs;
use std::path::Path;

#[test]
fn every_kernel_has_ptx_that_any_driver_since_cuda_12_0_takes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let mut sources = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "cu") {
            sources += 1;
            let source = fs::read_to_string(&path).unwrap();
            let ptx = fs::read_to_string(path.with_extension("ptx")).unwrap();
            assert!(ptx.starts_with(".version 8.0\n.target sm_75\n"), "{}", path.display());
            let file = format!("\t.file\t1 \"{}\"\n", path.file_name().unwrap().display());
            assert!(ptx.ends_with(&file), "{}: sources are named without a folder", path.display());
            let kernels = source.matches("__global__").count();
            assert_eq!(ptx.matches(".visible .entry").count(), kernels, "{}", path.display());
        }
    }
    assert_eq!(sources, apex_demo::PROGRAMS.len());
}
