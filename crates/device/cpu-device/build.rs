//! Gives the library the name under which CUDA programs ask for their driver.

fn main() {
    // glibc matches a wanted `libcuda.so.1` against the SONAME of what is loaded, whatever the file
    // is called.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Worker threads execute this library's code for as long as the process lives: it must never be
    // unmapped.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The addresses that `cuGetProcAddress` gives are this library's symbols, also where another
    // one that exports the same names was loaded before.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo::rerun-if-changed=build.rs");
}
