//! The runs of the program under `apex tune`: each by `apex run`, into a session of a folder for
//! temporary files, which ends with this.
//!
//! A signal that ends programs reaches the program, which then ends as it would alone; the folder
//! is removed, and no further run begins.

use super::Stopped;
use crate::output;
use crate::run::child::Signals;
use anyhow::Context;
use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// See the [module](self).
pub struct Runs<'a> {
    command: &'a [OsString],
    /// Whether stdout is for a document alone.
    keeps_stdout: bool,
    folder: PathBuf,
    stdin: Stdin,
    signals: Signals,
}

impl<'a> Runs<'a> {
    /// Makes the folder. Called once, while the process has one thread.
    pub fn new(command: &'a [OsString], keeps_stdout: bool) -> anyhow::Result<Self> {
        let signals = Signals::block();
        let folder = std::env::temp_dir().join(format!("apex-tune-{}", std::process::id()));
        let made = DirBuilder::new().mode(0o700).create(&folder);
        made.with_context(|| format!("cannot make the folder {}", apex_untrusted::shown(&folder)))?;
        let stdin = Stdin::find();
        if stdin == Stdin::ReadOnce {
            output::remark(
                "stdin is a pipe, which only the first run of the program can read: if it needs its input in each \
                 run, give it a file (`< FILE`)",
            );
        }
        Ok(Self { command, keeps_stdout, folder, stdin, signals })
    }

    /// The path of a file in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Runs the program by `apex run` with these options, and returns its session.
    pub fn run(&self, name: &str, options: &[&OsStr]) -> Result<PathBuf, Stopped> {
        if let Some(signal) = self.signals.ends_before_start() {
            return Err(Stopped::Interrupted(Some(signal)));
        }
        self.stdin.rewind();
        let session = self.file(name);
        let mut apex = Command::new(std::env::current_exe().context("cannot find the apex executable")?);
        apex.args(["run", "--quiet", "--no-machine", "--host-stacks", "off", "-o"])
            .arg(&session)
            .args(options);
        // Set for a run of the user, it must not change these.
        apex.env_remove("APEX_TUNED").env_remove("APEX_FAST");
        if self.keeps_stdout {
            apex.stdout(Stdio::from(std::io::stderr()));
        }
        apex.arg("--").args(self.command);
        let mut child = self.signals.spawn(&mut apex).context("cannot run the program")?;
        let status = self.signals.wait(&mut child, || None).context("cannot wait for the program")?;
        match status {
            _ if self.signals.interrupted() => Err(Stopped::Interrupted(status.signal())),
            status if status.success() => Ok(session),
            status => Err(Stopped::Program(status)),
        }
    }
}

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        // A leftover in the folder for temporary files does no harm.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// What the program reads from stdin in each run.
#[derive(PartialEq)]
enum Stdin {
    /// A file, from this position on.
    File(libc::off_t),
    /// A pipe or a socket.
    ReadOnce,
    /// A terminal, or nothing.
    Other,
}

impl Stdin {
    fn find() -> Self {
        // SAFETY: `stat` is plain data, for which zeros are valid, and it is valid for writing.
        let kind = unsafe {
            let mut found: libc::stat = std::mem::zeroed();
            if libc::fstat(libc::STDIN_FILENO, &raw mut found) != 0 {
                return Self::Other;
            }
            found.st_mode & libc::S_IFMT
        };
        match kind {
            // SAFETY: takes integers.
            libc::S_IFREG => Self::File(unsafe { libc::lseek(libc::STDIN_FILENO, 0, libc::SEEK_CUR) }),
            libc::S_IFIFO | libc::S_IFSOCK => Self::ReadOnce,
            _ => Self::Other,
        }
    }

    fn rewind(&self) {
        if let Self::File(position) = self {
            // SAFETY: takes integers.
            unsafe { libc::lseek(libc::STDIN_FILENO, *position, libc::SEEK_SET) };
        }
    }
}
