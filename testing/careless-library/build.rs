//! Makes the library a `libcuda.so.1` to the dynamic linker, as `libapex.so` is.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for argument in ["-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic", "-Wl,-z,nodelete"] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
}
