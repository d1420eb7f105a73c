//! The library as the dynamic linker sees it: its SONAME, the libraries that it needs, and its
//! exported symbols.

mod support;

use std::collections::BTreeSet;
use test_process::Command;

/// Returns the output of `readelf` (binutils) about the library; `None` if there is no `readelf`.
fn readelf(option: &str) -> Option<String> {
    let library = support::library();
    let output = Command::new("readelf").args(["--wide", option]).arg(&library).env("LC_ALL", "C").output();
    let Ok(output) = output else {
        test_skip::missing_dependency("no readelf");
        return None;
    };
    assert!(output.status.success(), "readelf: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).expect("names are UTF-8"))
}

/// The value of a line of `readelf --dynamic`, as in `(NEEDED) Shared library: [libc.so.6]`.
fn value<'l>(line: &'l str, tag: &str) -> Option<&'l str> {
    line.split_once(tag)?.1.split_once('[')?.1.split_once(']').map(|(value, _)| value)
}

/// The symbol of a line of `readelf --dyn-syms`, if the library defines it for others.
fn export(line: &str) -> Option<&str> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, _, _, _, "GLOBAL" | "WEAK", "DEFAULT" | "PROTECTED", section, name, ..] = *fields else {
        return None;
    };
    (section != "UND").then(|| name.split('@').next().unwrap_or(name))
}

#[test]
fn it_is_a_libcuda_that_needs_nothing_of_cuda() {
    let Some(dynamic) = readelf("--dynamic") else { return };
    let values = |tag| dynamic.lines().filter_map(move |line| value(line, tag));
    assert_eq!(values("(SONAME)").collect::<Vec<_>>(), ["libcuda.so.1"]);
    assert!(values("(NEEDED)").any(|needed| needed == "libc.so.6"), "{dynamic}");
    for needed in values("(NEEDED)") {
        let harmless = ["libc.so.", "libgcc_s.so.", "libm.so.", "ld-linux-"];
        assert!(harmless.iter().any(|name| needed.starts_with(name)), "it needs {needed}");
    }
}

#[test]
fn it_exports_the_table_and_the_functions_that_it_stands_in_front_of_and_nothing_else() {
    let Some(symbols) = readelf("--dyn-syms") else { return };
    let exported: BTreeSet<&str> = symbols.lines().filter_map(export).collect();
    let table = cuda_abi::ENTRY_POINTS.iter().map(|entry| entry.symbol);
    let signals = ["sigaction", "signal", "pthread_sigmask", "sigprocmask"];
    let others = ["dlopen", "dlmopen", "InitializeInjectionNvtx2"];
    let endings = [
        "_exit", "_Exit", "execl", "execle", "execlp", "execv", "execve", "execvp", "execvpe", "execveat",
        "fexecve",
    ];
    let expected: BTreeSet<&str> = table.chain(signals).chain(others).chain(endings).collect();
    assert_eq!(exported, expected);
}
