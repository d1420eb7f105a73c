//! Tables of machine code against a driver's answers: the H200 of `data/h200/launches`.

use std::collections::{HashMap, HashSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use test_process::Command;

/// The toolkit of that machine's driver: another ptxas may give other registers.
const TOOLKIT: &str = "release 13.0";

/// A ptxas of that toolkit, where `scripts/test-deps.sh` puts one, or as `PTXAS` names it.
fn ptxas(root: &Path) -> Option<PathBuf> {
    let named = std::env::var_os("PTXAS").map(PathBuf::from);
    let fits = |path: &PathBuf| {
        let said = Command::new(path).arg("--version").output();
        said.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains(TOOLKIT))
    };
    let found = named.into_iter().chain([root.join("target/test-deps/cuda13/bin/ptxas")]).find(fits);
    if found.is_none() {
        test_skip::missing_dependency("no ptxas of toolkit 13.0 (PTXAS may name one)");
    }
    found
}

/// Registers, static shared and local memory by kernel.
fn recorded(root: &Path) -> HashMap<String, [u32; 3]> {
    let table = std::fs::read_to_string(root.join("data/h200/launches/kernels.csv")).unwrap();
    let mut lines = table.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    let column = |name| head.iter().position(|column| *column == name).unwrap();
    let columns = ["registers", "static_shared_bytes", "local_bytes"].map(column);
    let name = column("kernel");
    lines.map(|line| (line[name].to_owned(), columns.map(|at| line[at].parse().unwrap()))).collect()
}

#[test]
fn tables_say_what_the_driver_of_an_h200_said() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let Some(ptxas) = ptxas(&root) else { return };
    let recorded = recorded(&root);
    let mut compared = HashSet::new();
    for file in std::fs::read_dir(root.join("crates/device/device-code/generated/suite")).unwrap() {
        let packed = std::fs::read(file.unwrap().path()).unwrap();
        let mut source = String::new();
        ruzstd::decoding::StreamingDecoder::new(&packed[..]).unwrap().read_to_string(&mut source).unwrap();
        let (ptx, cubin) = (temporary("ptx"), temporary("cubin"));
        std::fs::write(&ptx, &source).unwrap();
        let assembled =
            Command::new(&ptxas).args(["-arch=sm_90", "-o"]).args([&cubin, &ptx]).output().unwrap();
        assert!(assembled.status.success(), "{}", String::from_utf8_lossy(&assembled.stderr));
        let machine_code = std::fs::read(&cubin).unwrap();
        for (name, expected) in &recorded {
            let Some(found) = fatbin::cubin::kernel(&machine_code, name).unwrap() else { continue };
            let found = [found.registers.unwrap(), found.static_shared_bytes, found.local_bytes.unwrap()];
            assert_eq!(found, *expected, "{name}");
            compared.insert(name);
        }
        [ptx, cubin].iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }
    assert_eq!(compared.len(), recorded.len());
}

fn temporary(extension: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tables-{}.{extension}", std::process::id()))
}
