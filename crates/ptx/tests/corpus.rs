//! Real PTX: what NVRTC makes of the programs in `tests/corpus`, and the programs that ship with the demo.

use std::path::{Path, PathBuf};

fn corpus() -> Vec<(PathBuf, String)> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [here.join("tests/corpus"), here.join("../demo/kernels")];
    let mut files: Vec<PathBuf> = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "ptx"))
        .collect();
    files.sort();
    assert!(files.len() >= 20, "the corpus is missing");
    files.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

fn parse(path: &Path, source: &str) -> ptx::Module {
    let name = path.display().to_string();
    ptx::parse(source).unwrap_or_else(|error| panic!("{}", error.render(&name, source)))
}

#[test]
fn everything_parses() {
    for (path, source) in corpus() {
        let module = parse(&path, &source);
        let entries = source.matches(".entry ").count();
        let found = module.functions().filter(|function| function.kind == ptx::FunctionKind::Entry).count();
        assert_eq!(entries, found, "{}", path.display());
    }
}

#[test]
fn what_is_printed_parses_to_the_same() {
    for (path, source) in corpus() {
        let module = parse(&path, &source);
        let printed = module.to_string();
        let again = parse(&path.with_extension("printed.ptx"), &printed);
        assert!(module == again, "{}: the printed module differs", path.display());
        assert_eq!(printed, again.to_string());
    }
}
