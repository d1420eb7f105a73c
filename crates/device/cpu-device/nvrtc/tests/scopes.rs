//! The NVRTC behind this library is the one that the caller would have reached without it, in
//! whatever scope of the dynamic linker it lies. NVRTC's functions are those of a library in C that
//! prints its version.

use std::path::{Path, PathBuf};
use test_process::Command;

/// Stands for NVRTC; its version is both what it prints and the size of its PTX.
const NVRTC: &str = r#"
#include <stdio.h>
int nvrtcCompileProgram(void* program, int count, const char** options) {
  printf("%d compiles with %s", VERSION, options[0]);
  return 0;
}
int nvrtcGetCUBINSize(void* program, unsigned long* size) { *size = 0; return 7; }
int nvrtcGetPTXSize(void* program, unsigned long* size) { *size = VERSION; return 0; }
int nvrtcGetCUBIN(void* program, char* code) { *code = 'C'; return 7; }
int nvrtcGetPTX(void* program, char* code) { *code = 'P'; return 0; }
int nvrtcDestroyProgram(void** program) { *program = 0; return VERSION; }
"#;

/// Compiles for machine code, and prints what it gets.
const USER: &str = r#"
#include <stdio.h>
int nvrtcCompileProgram(void*, int, const char**), nvrtcDestroyProgram(void**);
int nvrtcGetCUBINSize(void*, unsigned long*), nvrtcGetCUBIN(void*, char*);
void use(void) {
  char place, code = 0;
  void* program = &place;
  const char* option = "--gpu-architecture=sm_80";
  unsigned long size = 0;
  int results[4];
  results[0] = nvrtcCompileProgram(program, 1, &option);
  results[1] = nvrtcGetCUBINSize(program, &size);
  results[2] = nvrtcGetCUBIN(program, &code);
  results[3] = nvrtcDestroyProgram(&program);
  printf(": %lu bytes of %c, results %d %d %d %d\n", size, code, results[0], results[1], results[2], results[3]);
}
"#;

/// Opens libraries as Python opens extension modules, and calls each one's function.
const OPENER: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char** libraries) {
  for (int i = 1; i < count; i++) {
    void* library = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) { puts(dlerror()); return 1; }
    ((void (*)(void))dlsym(library, "use"))();
  }
  return 0;
}
"#;

/// Programs and libraries of these tests.
struct Built {
    folder: tempfile::TempDir,
}

impl Built {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Compiles a source; false, said, where there is no C compiler.
    fn compile(&self, name: &str, source: &str, arguments: &[&str]) -> bool {
        let file = self.path(name).with_extension("c");
        std::fs::write(&file, source).unwrap();
        let run_path = format!("-Wl,-rpath,{}", self.folder.path().display());
        let mut cc = Command::new("cc");
        cc.args(["-w", "-o", name]).arg(&file).args(arguments).args(["-ldl", &run_path]);
        match cc.current_dir(self.folder.path()).status() {
            Ok(status) => {
                assert!(status.success(), "cc failed");
                true
            }
            Err(error) => {
                test_skip::impossible_here(format!("cannot run cc: {error}"));
                false
            }
        }
    }

    /// Returns what a program prints with this library in front of NVRTC.
    fn run(&self, program: &str, libraries: &[&str]) -> String {
        let deps = std::env::current_exe().unwrap();
        let ours = deps.with_file_name("libapex_nvrtc.so");
        assert!(ours.exists(), "{} is not built", ours.display());
        let libraries = libraries.iter().map(|name| self.path(name));
        let mut command = Command::new(Path::new(&self.path(program)));
        let output = command.args(libraries).env("LD_PRELOAD", ours).output().unwrap();
        assert!(output.status.success(), "{}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }
}

/// Two versions of NVRTC, and a program that opens libraries.
fn built() -> Option<Built> {
    let built = Built { folder: tempfile::tempdir().unwrap() };
    let shared = ["-shared", "-fPIC"];
    let is_built = built.compile("libnvrtc.so.12", NVRTC, &[&shared[..], &["-DVERSION=12"]].concat())
        && built.compile("libnvrtc.so.13", NVRTC, &[&shared[..], &["-DVERSION=13"]].concat())
        && built.compile("opener", OPENER, &[]);
    is_built.then_some(built)
}

/// A library that compiles, linked against some libraries.
fn plugin(built: &Built, name: &str, needed: &[&str]) {
    let arguments = [&["-shared", "-fPIC", "-Wl,--no-as-needed", "-L."], needed].concat();
    assert!(built.compile(name, USER, &arguments));
}

/// Returns the output of a program that reaches this version of NVRTC.
fn expected(version: u32) -> String {
    format!(
        "{version} compiles with --gpu-architecture=compute_80: {version} bytes of P, results 0 0 0 {version}\n"
    )
}

#[test]
fn an_nvrtc_that_the_program_is_linked_against_is_reached() {
    let Some(built) = built() else { return };
    let source = format!("{USER} int main(void) {{ use(); return 0; }}");
    assert!(built.compile("linked", &source, &["-L.", "-l:libnvrtc.so.13"]));
    assert_eq!(built.run("linked", &[]), expected(13));
}

#[test]
fn an_nvrtc_that_a_library_brought_in_for_itself_is_reached() {
    let Some(built) = built() else { return };
    plugin(&built, "a.so", &["-l:libnvrtc.so.12"]);
    assert_eq!(built.run("opener", &["a.so"]), expected(12));
}

#[test]
fn each_library_reaches_its_own_version() {
    let Some(built) = built() else { return };
    plugin(&built, "a.so", &["-l:libnvrtc.so.12"]);
    plugin(&built, "b.so", &["-l:libnvrtc.so.13"]);
    assert_eq!(built.run("opener", &["a.so", "b.so", "a.so"]), [12, 13, 12].map(expected).concat());
}

/// The linker looks in the scope of the library that was opened, and so finds an NVRTC that the
/// caller itself does not need.
#[test]
fn an_nvrtc_that_the_library_around_the_caller_needs_is_reached() {
    let Some(built) = built() else { return };
    plugin(&built, "inner.so", &[]);
    plugin(&built, "outer.so", &["-l:inner.so", "-l:libnvrtc.so.13", "-Duse=unused"]);
    assert_eq!(built.run("opener", &["outer.so"]), expected(13));
}

#[test]
fn where_there_is_no_nvrtc_calls_fail() {
    let Some(built) = built() else { return };
    let source = format!("{USER} int main(void) {{ use(); return 0; }}");
    let ours = std::env::current_exe().unwrap().with_file_name("libapex_nvrtc.so");
    assert!(built.compile("alone", &source, &[ours.to_str().unwrap()]));
    assert_eq!(built.run("alone", &[]), ": 0 bytes of \0, results 11 11 11 11\n");
}
