//! The binaries that are checked in come from the sources that are checked in: `binaries/manifest.txt`, written by
//! `scripts/kernels.sh`, has a hash of every file that each was made from.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn sha256(file: &Path) -> String {
    let output = Command::new("sha256sum").arg(file).output().expect("coreutils has sha256sum");
    assert!(output.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().split_whitespace().next().unwrap().to_owned()
}

#[test]
fn binaries_belong_to_the_sources() {
    let (sources, binaries) = (folder("cuda"), folder("binaries"));
    let headers: Vec<_> = names(&sources).into_iter().filter(|name| name.ends_with(".cuh")).collect();
    let manifest = std::fs::read_to_string(binaries.join("manifest.txt")).unwrap();
    let mut listed = BTreeSet::from(["manifest.txt".to_owned()]);
    for line in manifest.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [file, hash, source, _compiler, _flags, inputs @ ..] = &fields[..] else {
            panic!("a line of the manifest has a file, its hash, source, compiler, flags, hashes: {line}");
        };
        assert_eq!(sha256(&binaries.join(file)), *hash, "{file} is not what scripts/kernels.sh made");
        let read = headers.iter().map(String::as_str).chain([*source]);
        let now: Vec<String> = read.map(|name| sha256(&sources.join(name))).collect();
        assert_eq!(now, inputs, "{file} was made from other sources: run scripts/kernels.sh");
        listed.insert((*file).to_owned());
    }
    assert_eq!(names(&binaries), listed, "every binary is in the manifest, and nothing else");
}
