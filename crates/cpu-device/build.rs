//! Gives the library the name under which CUDA programs ask for their driver.

fn main() {
    // glibc matches a wanted `libcuda.so.1` against the SONAME of what is loaded, whatever the file is called.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Worker threads execute this library's code for as long as the process lives: it must never be unmapped.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
