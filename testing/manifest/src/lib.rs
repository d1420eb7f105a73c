//! Checks that the device code that is checked in was compiled from the sources that are checked
//! in.
//!
//! `scripts/device-code.sh` and `scripts/kernels.sh` write a manifest with a line for each output:
//! its path, the SHA-256 of its content (decompressed, if the path ends in `.zst`), the source, the
//! compiler, the flags, and the SHA-256 of the source and of each header beside it. Comparing them
//! takes no compiler.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use test_process::Command;

/// The content of a manifest, as paths in the repository.
#[derive(Debug, Default)]
pub struct Manifest {
    /// The sources.
    pub sources: BTreeSet<String>,
    /// The compiled files.
    pub outputs: BTreeSet<String>,
}

/// Compares each line of the manifest with the files that it names.
///
/// # Panics
/// If a file differs from what the manifest says; the message says that `script` writes it anew.
pub fn check(manifest: &str, script: &str) -> Manifest {
    let text = String::from_utf8(content(manifest)).expect("a manifest is text");
    let mut listed = Manifest::default();
    for line in text.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [output, hash, source, _compiler, _flags, inputs @ ..] = &fields[..] else {
            panic!("a line has output, hash, source, compiler, flags, hashes of the inputs: {line}");
        };
        assert_eq!(sha256(&content(output)), *hash, "{output} is not what {script} wrote");
        let (folder, _) = source.rsplit_once('/').expect("a source lies in a folder");
        let read = [(*source).to_owned()].into_iter().chain(files(folder, ".cuh"));
        let now: Vec<String> = read.map(|path| sha256(&content(&path))).collect();
        assert_eq!(now, inputs, "{output} was compiled from other sources: run {script}");
        listed.sources.insert((*source).to_owned());
        listed.outputs.insert((*output).to_owned());
    }
    listed
}

/// The files of a folder of the repository with this ending, as paths in the repository.
///
/// # Panics
/// If there is no such folder.
pub fn files(folder: &str, ending: &str) -> BTreeSet<String> {
    let entries =
        std::fs::read_dir(repository().join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(ending)).map(|name| format!("{folder}/{name}")).collect()
}

/// The PTX that compilers made of the programs in `crates/ptx/ptx/tests/corpus`: path without the
/// ending of its compression, and text.
///
/// # Panics
/// If it is missing.
pub fn ptx_corpus() -> Vec<(PathBuf, String)> {
    let packed = files("crates/ptx/ptx/tests/corpus", ".ptx.zst");
    assert!(!packed.is_empty(), "the corpus is missing");
    let text = |path: &String| String::from_utf8(content(path)).expect("PTX is text");
    packed.iter().map(|path| (repository().join(path).with_extension(""), text(path))).collect()
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The bytes of a file of the repository, decompressed if its name ends in `.zst`.
///
/// # Panics
/// If there is no such file, or it cannot be decompressed.
pub fn content(path: &str) -> Vec<u8> {
    let bytes = std::fs::read(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    if !path.ends_with(".zst") {
        return bytes;
    }
    let mut content = Vec::new();
    let decoder = ruzstd::decoding::StreamingDecoder::new(&bytes[..]);
    let read = decoder
        .map_err(|error| error.to_string())
        .and_then(|mut decoder| decoder.read_to_end(&mut content).map_err(|error| error.to_string()));
    read.unwrap_or_else(|error| panic!("{path}: {error}"));
    content
}

/// SHA-256 in hexadecimal, by the program of coreutils.
fn sha256(bytes: &[u8]) -> String {
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("coreutils has sha256sum");
    child.stdin.take().expect("it is piped").write_all(bytes).expect("sha256sum reads to the end");
    let output = child.wait_with_output().expect("sha256sum ends");
    let text = String::from_utf8(output.stdout).expect("sha256sum prints ASCII");
    text.split_whitespace().next().expect("sha256sum prints the hash first").to_owned()
}
