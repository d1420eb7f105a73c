//! Programs that open the driver's file by its path are recorded like those that open it by its
//! name, and forward to the driver that they have named.

mod support;

use std::path::Path;
use support::{Recording, compiled, driver_file, finished, launches};
use tempfile::TempDir;
use test_process::Command;

/// A program that opens drivers by their paths (`tests/shims/by_path.c`), and a folder.
struct Program {
    folder: TempDir,
    recording: Recording,
}

impl Program {
    fn new() -> Option<Program> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        compiled("by_path.c", &folder.path().join("program"), &["-ldl"])?;
        Some(Program { folder, recording: Recording::untimed() })
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// It makes one launch by each driver that `words` lead to. Nobody names a driver for it.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.recording.program(&self.path("program"));
        command.args(words).current_dir(self.folder.path()).env_remove("APEX_DRIVER");
        command.env("LD_LIBRARY_PATH", self.path("empty"));
        command
    }

    fn launches(&self) -> usize {
        self.recording.open().processes.iter().map(|process| launches(process).len()).sum()
    }
}

#[test]
fn a_driver_that_is_opened_by_its_path_is_recorded() {
    for (name, path) in [
        ("libcuda.so.1", "drivers/libcuda.so.1"),
        ("libcuda.so", "./drivers/libcuda.so"),
        ("libcuda.so.580.65.06", "drivers/../drivers/libcuda.so.580.65.06"),
    ] {
        let Some(program) = Program::new() else { return };
        let file = driver_file(&program.path("drivers"));
        std::fs::rename(file, program.path("drivers").join(name)).unwrap();
        let absolute = program.path(path);
        for path in [path, absolute.to_str().unwrap()] {
            let before = program.launches();
            assert_eq!(finished(&mut program.command(&["dlopen", path])), "launched: 0\n", "{path}");
            assert_eq!(program.launches(), before + 1, "{path}");
        }
        assert_eq!(finished(&mut program.command(&["dlmopen", path])), "launched: 0\n", "{path}");
        assert_eq!(program.launches(), 3, "dlmopen into the program's own name space");
    }
}

#[test]
fn the_driver_that_the_program_names_is_the_one_that_it_gets() {
    let Some(program) = Program::new() else { return };
    let (one, other) = (driver_file(&program.path("one")), driver_file(&program.path("other")));
    let loaded = |words: &[&str]| {
        let said = finished(program.command(words).env("SHOWS_DRIVERS", "1"));
        [&one, &other].map(|file| said.contains(file.to_str().unwrap()))
    };
    let [one_path, other_path] = [&one, &other].map(|file| file.to_str().unwrap());
    assert_eq!(loaded(&["dlopen", one_path]), [true, false]);
    assert_eq!(loaded(&["dlopen", other_path]), [false, true]);
    assert_eq!(loaded(&["dlopen", other_path, "dlopen", other_path]), [false, true]);
}

#[test]
fn a_driver_that_cannot_be_recorded_works_and_is_named() {
    let Some(program) = Program::new() else { return };
    let (one, other) = (driver_file(&program.path("one")), driver_file(&program.path("other")));
    let [one, other] = [&one, &other].map(|file| file.to_str().unwrap());
    const NO_DRIVER: &str = "found no libcuda.so.1";
    let cases = [
        (&["dlopen", one, "dlopen", other][..], 1, "after another driver"),
        (&["dlmopen-new", one], 0, "name space of its own"),
        // The first message of a process is the only one.
        (&["dlopen", "libcuda.so.1", "dlopen", one], 0, NO_DRIVER),
    ];
    for (words, recorded, expected) in cases {
        if expected == NO_DRIVER && !apex_conventions::locate::candidates(&[]).is_empty() {
            test_skip::impossible_here("this machine has a driver, which the program finds by its name");
            continue;
        }
        let before = program.launches();
        let output = program.command(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}{said}", String::from_utf8_lossy(&output.stdout));
        assert_eq!(program.launches() - before, recorded, "{words:?}");
        assert!(said.contains(expected), "{words:?}: {said}");
    }
}

/// Opening a missing file fails with the linker's own words, and other libraries are opened as
/// ever, by the run path of the library that asks.
#[test]
fn all_other_opens_are_the_linkers() {
    let Some(program) = Program::new() else { return };
    let said = |command: &mut Command| String::from_utf8(command.output().unwrap().stdout).unwrap();
    for words in
        [["dlopen", "nowhere/libcuda.so.1"], ["dlopen", "nowhere.so"], ["dlmopen", "nowhere/libcuda.so"]]
    {
        let mut bare = program.command(&words);
        let expected = said(bare.env_remove("LD_PRELOAD"));
        assert!(expected.contains("cannot open shared object file"), "{expected}");
        assert_eq!(said(&mut program.command(&words)), expected);
    }
    let inner = program.path("inner");
    std::fs::create_dir(&inner).unwrap();
    let library = |source: &str, to: &Path, arguments: &[&str]| {
        let arguments = [&["-shared", "-fPIC", "-ldl"], arguments].concat();
        compiled(source, to, &arguments).expect("it compiled a program before");
    };
    library("by_path.c", &inner.join("found.so"), &["-DFOUND"]);
    let run_path = format!("-Wl,-rpath,{}", inner.display());
    library("by_path.c", &program.path("asks.so"), &["-DASKS", &run_path]);
    assert_eq!(said(&mut program.command(&["asks", "./asks.so"])), "found by the run path\n");
}
