//! Modules of a crate that import each other in a circle. A reader has to take such modules as one.
//! This test lists the circles that there are; a new one fails, and so does a line without a
//! circle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Circles among the topmost modules of crates.
const CIRCLES: [&str; 12] = [
    "cpu-device: context graph image launch module stream",
    "cpu-device: device memory",
    "cuda-abi: constants result types",
    "gpu: buffer device graph memory pinned stream uses",
    "gpu: global module",
    "kernels-c: norms operation",
    "predict: bounds case",
    "profile: accounts observer profile",
    "ptx-exec: device image memory",
    "ptx-exec: observe runtime warp",
    "trace: fault mapping",
    "trace: meta reader",
];

/// The modules that each module names.
type Imports = BTreeMap<String, BTreeSet<String>>;

#[test]
fn circles_of_modules_are_listed() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let wings = inside(&crates);
    let crates = wings.iter().flat_map(|wing| inside(wing)).chain([crates.join("cli")]);
    let mut found = BTreeSet::new();
    for krate in crates.filter(|krate| krate.join("Cargo.toml").exists()) {
        let name = krate.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let imports = imports(&krate.join("src"));
        found.extend(circles(&imports).into_iter().map(|circle| format!("{name}: {circle}")));
    }
    let listed: BTreeSet<String> = CIRCLES.map(str::to_owned).into();
    assert_eq!(found, listed);
}

/// The paths of what is in a folder; nothing if it is a file.
fn inside(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

/// The modules of a crate that reach each other, by name.
fn circles(imports: &Imports) -> BTreeSet<String> {
    let reached = |from: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(module) = open.pop() {
            open.extend(imports[module].iter().filter(|module| seen.insert((*module).clone())));
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> =
        imports.keys().map(|module| (module, reached(module))).collect();
    let circle = |module: &&String| -> Vec<&str> {
        let both =
            |other: &&&String| reached[*module].contains(**other) && reached[**other].contains(*module);
        imports.keys().collect::<Vec<_>>().iter().filter(both).map(|other| other.as_str()).collect()
    };
    let circles = imports.keys().map(|module| circle(&module)).filter(|circle| circle.len() > 1);
    circles.map(|circle| circle.join(" ")).collect()
}

/// What the topmost modules below a folder name of each other.
fn imports(sources: &Path) -> Imports {
    let mut imports = Imports::new();
    for entry in std::fs::read_dir(sources).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut named = BTreeSet::new();
        files(&path).iter().for_each(|file| named_in(file, &mut named));
        imports.entry(name).or_default().extend(named);
    }
    imports.retain(|name, _| name != "lib" && name != "main");
    let modules: BTreeSet<String> = imports.keys().cloned().collect();
    for (module, named) in &mut imports {
        named.retain(|name| name != module && modules.contains(name));
    }
    imports
}

/// Rust files, without those of tests.
fn files(path: &Path) -> Vec<PathBuf> {
    let name = path.file_stem().unwrap_or_default();
    match std::fs::read_dir(path) {
        _ if name == "tests" || name == "fixture" => Vec::new(),
        Ok(entries) => entries.flatten().flat_map(|entry| files(&entry.path())).collect(),
        Err(_) if path.extension().is_some_and(|extension| extension == "rs") => vec![path.to_owned()],
        Err(_) => Vec::new(),
    }
}

/// The modules that a file names behind `crate::`, tests and comments aside.
fn named_in(file: &Path, named: &mut BTreeSet<String>) {
    let text = std::fs::read_to_string(file).expect("Rust");
    let product = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let code: Vec<&str> = product.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let code = code.join("\n");
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    for rest in code.split("crate::").skip(1) {
        let list = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).map(|(list, _)| list);
        let first = rest.split(|c| !is_part(c)).next().unwrap_or_default();
        let words = list.unwrap_or(first).split(|c| !is_part(c));
        named.extend(words.filter(|word| !word.is_empty()).map(str::to_owned));
    }
}
