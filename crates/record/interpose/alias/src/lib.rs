//! `libapex_alias.so`: answers programs that open `libcuda.so` instead of `libcuda.so.1`.
//!
//! glibc finds a loaded library by its SONAME, of which there is one to a library. This one is
//! called `libcuda.so` and holds nothing: it needs `libcuda.so.1`, which is the preloaded
//! `libapex.so`, and a look-up in it goes on to what it needs. `apex run` preloads both, the other
//! one first.
