//! Gives the library its name. glibc answers `dlopen("libcuda.so.1")`, and every DT_NEEDED of that
//! name, with a library that is already loaded under it; a preloaded library is loaded first, but
//! only its SONAME counts, not its file's name.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // All relocations at load: no lazy binding while a program is in the middle of a launch.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,now");
    // The addresses that `cuGetProcAddress` gives may be this library's symbols, also where another
    // library that exports the same names was loaded before.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // Never unloaded: the program may hold our entry points, and threads our state.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
