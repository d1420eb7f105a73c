//! Shared parts of the tests: a session to record into, and programs to run under the injected
//! library.

#![allow(dead_code, reason = "each test file uses its part")]

use apex_trace::control::{MappedControl, Settings, TimingMode};
use apex_trace::layout::{Launch, StackSample};
use apex_trace::{Event, Process, Session};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tempfile::TempDir;
use test_process::{Child, Command};

/// `libapex.so`, which cargo builds for these tests.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let path = test.with_file_name("libapex.so");
    assert!(path.exists(), "{} is not built: run `cargo test -p apex-interpose`", path.display());
    path
}

/// The driver without a GPU.
pub fn fake_driver() -> PathBuf {
    test_build::library("fake-driver")
}

/// A program of `testing/driver-client`, as it runs without APEX: not at all, for it finds no
/// driver.
pub fn client(program: &str) -> Command {
    let mut command = Command::new(test_build::program("driver-client"));
    command.args(program.split(' '));
    for variable in ["APEX_SESSION", "APEX_DRIVER", "APEX_DISABLE", "LD_PRELOAD", "LD_LIBRARY_PATH"] {
        command.env_remove(variable);
    }
    command
}

/// A session directory, removed at the end.
pub struct Recording {
    folder: TempDir,
    pub control: MappedControl,
}

impl Recording {
    pub fn new(settings: Settings) -> Recording {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let control = MappedControl::create(folder.path(), settings).expect("a control page");
        Recording { folder, control }
    }

    /// Recording, without timing.
    pub fn untimed() -> Recording {
        Recording::new(Settings { timing: TimingMode::Off, ..Settings::default() })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A program under the library, on the fake driver, recording into this session.
    pub fn client(&self, program: &str) -> Command {
        let mut command = client(program);
        command
            .env("LD_PRELOAD", library())
            .env("APEX_DRIVER", fake_driver())
            .env("APEX_SESSION", self.path());
        command
    }

    /// Another program, in the environment of [`Recording::client`].
    pub fn program(&self, path: &Path) -> Command {
        let mut command = Command::new(path);
        for (name, value) in self.client("").get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    /// Runs a program and gives what it printed.
    pub fn run(&self, program: &str) -> String {
        finished(&mut self.client(program))
    }

    /// Waits until a process of this session has made its file, at its first driver call.
    pub fn wait_until_begun(&self, child: &mut Child) {
        while self.control.processes.load(Ordering::Acquire) == 0 {
            assert!(child.try_wait().expect("a child").is_none(), "it ended before its first driver call");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// What was recorded; nothing must be wrong with it.
    pub fn open(&self) -> Session {
        let mut session = Session::open(self.path()).expect("a session");
        // Whoever runs programs describes the run; nobody does here, and a reader that knows of it
        // says so.
        session.problems.retain(|problem| !problem.path.ends_with(apex_trace::META_FILE));
        assert!(session.problems.is_empty(), "{:?}", session.problems);
        session
    }

    /// Returns the recording of the only process.
    pub fn process(&self) -> Process {
        let mut session = self.open();
        assert_eq!(session.processes.len(), 1, "one process made driver calls");
        session.processes.remove(0)
    }
}

/// Runs a program that must succeed and say nothing on standard error, and gives its standard
/// output.
#[track_caller]
pub fn finished(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("the program starts");
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{status}: {stderr}");
    assert_eq!(stderr, "", "nothing on standard error");
    String::from_utf8(stdout).expect("text")
}

/// The records of a process of one kind.
pub fn records<R>(process: &Process, pick: impl Fn(&Event) -> Option<R>) -> Vec<R> {
    process.records().filter_map(|record| pick(&record.event)).collect()
}

/// The call stacks that were read in a process.
pub fn samples(process: &Process) -> Vec<StackSample> {
    records(process, |event| match event {
        Event::StackSample(sample) => Some(*sample),
        _ => None,
    })
}

/// The launches of a process, in the order of its threads.
pub fn launches(process: &Process) -> Vec<Launch> {
    records(process, |event| match event {
        Event::Launch(launch) => Some(*launch),
        _ => None,
    })
}

/// A file named `libcuda.so.1` in this folder that is the driver without a GPU. Drivers at two
/// such paths are two drivers: a copy, and not a link.
pub fn driver_file(folder: &Path) -> PathBuf {
    std::fs::create_dir_all(folder).expect("a folder");
    let file = folder.join("libcuda.so.1");
    std::fs::copy(fake_driver(), &file).expect("a copy of the driver");
    file
}

/// `libapex_alias.so`
pub fn alias() -> PathBuf {
    test_build::library("apex-alias")
}

/// Compiles `tests/shims/SOURCE` with the C compiler; `None`, said on standard error, where there
/// is none.
pub fn compiled(source: &str, to: &Path, arguments: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shims").join(source);
    match Command::new("cc").arg("-o").arg(to).arg(source).args(arguments).status() {
        Ok(status) => {
            assert!(status.success(), "cc failed");
            Some(to.to_owned())
        }
        Err(error) => {
            eprintln!("skipped: cannot run cc: {error}");
            None
        }
    }
}
