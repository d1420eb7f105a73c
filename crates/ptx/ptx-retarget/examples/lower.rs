//! Lowers all PTX of a folder for some GPUs: `lower FROM TO CAPABILITY...`, such as `lower ptx out
//! 80 90`.
//!
//! Writes `NAME.sm_80.ptx` into TO for what had to be changed, and a line for each file and GPU to
//! standard output: the name, the capability, what became of it, and the rows that were used or the
//! first instruction that has none. `scripts/ptx-corpus.py` runs it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ptx_retarget::{Gpu, lower};

/// The newest PTX version of the GPUs' driver: CUDA 13.0's.
const NEWEST: ptx::forms::Version = (9, 0);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, to, capabilities @ ..] = arguments.as_slice() else {
        eprintln!("usage: lower FROM TO CAPABILITY...");
        std::process::exit(2);
    };
    let capabilities: Vec<u32> =
        capabilities.iter().map(|text| text.parse().expect("a capability such as 80")).collect();
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(from).expect("a folder").flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "ptx"));
    files.sort();
    for file in files {
        for capability in &capabilities {
            println!("{}", judged(&file, Path::new(to), *capability));
        }
    }
}

/// The line of a file for a GPU.
fn judged(file: &Path, to: &Path, capability: u32) -> String {
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let source = std::fs::read_to_string(file).expect("PTX");
    let module = match ptx::parse(&source) {
        Ok(module) => module,
        Err(error) => return format!("{name}\t{capability}\tinvalid\t{}", error.message),
    };
    if let Some(problem) = ptx::verify(&module).first() {
        return format!("{name}\t{capability}\tinvalid\t{}", problem.message);
    }
    let lowered = lower(&module, Gpu { capability, newest: NEWEST }, false);
    if let Some(lacking) = lowered.blocked.first() {
        return format!("{name}\t{capability}\tcannot\t{}", lacking.form);
    }
    if lowered.module == module {
        return format!("{name}\t{capability}\truns\t");
    }
    std::fs::write(to.join(format!("{name}.sm_{capability}.ptx")), lowered.module.to_string())
        .expect("a folder");
    let rows: BTreeSet<&str> = lowered.changes.iter().map(|change| change.row.name).collect();
    format!("{name}\t{capability}\tlowered\t{}", rows.into_iter().collect::<Vec<_>>().join(", "))
}
