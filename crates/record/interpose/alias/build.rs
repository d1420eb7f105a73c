//! Names the library `libcuda.so` and makes it need `libcuda.so.1`.
//!
//! The linker takes a library's name from the library, so this script makes an empty one of that
//! name to link against. When the program runs, the loader finds the preloaded `libapex.so`, which
//! has that name.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let folder = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let (source, stub) = (Path::new(&folder).join("stub.c"), Path::new(&folder).join("libcuda.so.1"));
    fs::write(&source, "").expect("OUT_DIR can be written");
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let made = Command::new(&compiler)
        .args(["-shared", "-nostdlib", "-Wl,-soname,libcuda.so.1", "-o"])
        .args([&stub, &source])
        .status();
    match made {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{compiler} could not link an empty library: {status}"),
        Err(error) => panic!("cannot run {compiler}, the C compiler that rustc links with too: {error}"),
    }
    // The library has no code, but the linker keeps what unwinding would call, and with it 300 KB
    // of the standard library. Nothing here unwinds: without the personality routine the linker
    // drops it all. zig's linker cannot define symbols, and keeps them.
    let zig = env::var("RUSTC_LINKER").is_ok_and(|linker| linker.contains("zig"));
    let personality = (!zig).then_some("-Wl,--defsym=rust_eh_personality=0");
    for argument in ["-Wl,-soname,libcuda.so", "-Wl,--no-as-needed"].into_iter().chain(personality) {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    println!("cargo::rustc-cdylib-link-arg={}", stub.display());
}
