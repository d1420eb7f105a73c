//! Every process that a test starts has a time limit: tests use `test_process::Command`, and not
//! the standard library's, which waits for ever.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Rust files below a folder.
fn files(folder: PathBuf) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the workspace") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("names are UTF-8");
            if path.is_dir() && !["target", "node_modules"].contains(&name) {
                folders.push(path);
            } else if name.ends_with(".rs") {
                files.push(path);
            }
        }
    }
    files
}

/// The part of a file that belongs to tests. Programs that tests run are no tests: whoever starts
/// them limits them, too.
fn of_tests<'a>(path: &Path, source: &'a str) -> &'a str {
    let is = |part: &str| path.iter().any(|name| name == part);
    if is("tests") || path.ends_with("tests.rs") || is("testing") && path.ends_with("src/lib.rs") {
        return source;
    }
    // `mod tests;` names another file.
    let begins = |at: &usize| source[*at..].lines().nth(1).is_some_and(|line| line.ends_with('{'));
    let mut modules = source.match_indices("#[cfg(test)]\nmod ").map(|(at, _)| at);
    modules.find(begins).map_or("", |at| &source[at..])
}

/// Whether a text names the standard library's type.
fn starts_processes(source: &str) -> bool {
    let names = |import: &str| {
        let list = import.split(';').next().unwrap_or_default();
        list.split(|c: char| !c.is_alphanumeric()).any(|name| ["Command", "Child"].contains(&name))
    };
    let imports = source.split("use std::process::").skip(1).any(names);
    imports
        || source.contains("std::process::Command")
        || source.contains("process::Command::new") && !source.contains("test_process::Command::new")
}

#[test]
fn tests_start_processes_with_a_limit_only() {
    let own = ["xtask/tests/processes.rs", "testing/process/src/lib.rs"];
    let root = root();
    let folders = ["crates", "fpga", "testing", "xtask"].map(|folder| files(root.join(folder)));
    let mut unlimited = Vec::new();
    for path in folders.concat() {
        let source = std::fs::read_to_string(&path).expect("a source file");
        if !own.iter().any(|own| path.ends_with(own)) && starts_processes(of_tests(&path, &source)) {
            unlimited.push(path);
        }
    }
    assert!(unlimited.is_empty(), "use test_process::Command, which has a time limit, in {unlimited:?}");
}

#[test]
fn the_rule_sees_each_way_to_name_the_type() {
    for source in [
        "use std::process::Command;",
        "use std::process::{Child, Stdio};",
        "use std::process::{\n    Command,\n};",
        "fn f() { std::process::Command::new(\"a\"); }",
        "use std::process;\nfn f() { process::Command::new(\"a\"); }",
    ] {
        assert!(starts_processes(source), "{source}");
    }
    for source in
        ["use std::process::{Output, Stdio};\nuse test_process::Command;", "test_process::Command::new(a)"]
    {
        assert!(!starts_processes(source), "{source}");
    }
    let product = "use std::process::Command;\n#[cfg(test)]\nmod tests {}";
    assert!(!starts_processes(of_tests(Path::new("crates/a/src/b.rs"), product)));
    assert!(starts_processes(of_tests(Path::new("crates/a/tests/b.rs"), product)));
    let outside = "#[cfg(test)]\nmod tests;\nuse std::process::Command;";
    assert!(!starts_processes(of_tests(Path::new("crates/a/src/b.rs"), outside)));
    let inside = "#[cfg(test)]\nmod tests {\n    use std::process::Command;\n}";
    assert!(starts_processes(of_tests(Path::new("crates/a/src/b.rs"), inside)));
}
