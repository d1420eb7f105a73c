//! What the library is to the dynamic linker.

mod support;

use cuda_abi::elf::Library;
use std::collections::BTreeSet;

#[test]
fn it_is_a_libcuda_that_needs_nothing_of_cuda() {
    let file = std::fs::read(support::library()).expect("the library");
    let library = Library::parse(&file).expect("a shared library");
    assert_eq!(library.soname(), Some("libcuda.so.1"));
    for needed in library.needed() {
        let harmless = ["libc.so.", "libgcc_s.so.", "libm.so.", "ld-linux-"];
        assert!(harmless.iter().any(|name| needed.starts_with(name)), "it needs {needed}");
    }
}

#[test]
fn it_exports_the_table_what_installs_signal_handlers_and_what_nvtx_calls_and_nothing_else() {
    let file = std::fs::read(support::library()).expect("the library");
    let library = Library::parse(&file).expect("a shared library");
    let exported: BTreeSet<&str> = library.exports().collect();
    let table = cuda_abi::ENTRY_POINTS.iter().map(|entry| entry.symbol);
    let others = ["sigaction", "signal", "pthread_sigmask", "sigprocmask", "InitializeInjectionNvtx2"];
    let expected: BTreeSet<&str> = table.chain(others).collect();
    assert_eq!(exported, expected);
}
