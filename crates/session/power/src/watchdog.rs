//! The process that releases the clock when its parent is gone.
//!
//! It runs in its own session, so signals from a terminal or to a process group do not reach it,
//! and it ignores the signals that users send to end programs. Its parent announces through a pipe
//! that a clock may be set; the end of the pipe is the end of the parent, whatever the cause.

use crate::{Claim, Nvml};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

/// Messages of the parent: a clock may be set from now on; no clock is set.
const SET: u8 = b'S';
const RELEASED: u8 = b'R';
/// Message of the watchdog once it can release the clock.
const READY: u8 = b'y';
/// Maximum time for the start of the watchdog, milliseconds.
const START_MS: libc::c_int = 20_000;
/// Maximum number of attempts to release the clock, and the pause between two.
const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(100);

/// The parent's side.
#[derive(Debug)]
pub struct Watchdog {
    child: Child,
    tell: ChildStdin,
}

impl Watchdog {
    /// Starts the command line `words` with the descriptor of the claim as an added argument, and
    /// waits until it is ready. The program must call [`watch`] with the claim of that descriptor.
    ///
    /// # Errors
    /// If it cannot be started, or does not become ready.
    pub fn start(words: &[OsString], claim: &Claim) -> io::Result<Self> {
        let (program, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let (mut command, number) = (Command::new(program), claim.number());
        command.args(arguments).arg(number.to_string()).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let become_watchdog = move || {
            // SAFETY: plain system calls on numbers. The file stays open in the new process alone.
            let done = unsafe { libc::setsid() >= 0 && libc::fcntl(number, libc::F_SETFD, 0) == 0 };
            if done { Ok(()) } else { Err(io::Error::last_os_error()) }
        };
        // SAFETY: the closure makes two system calls, which are allowed between fork and exec.
        let mut child = unsafe { command.pre_exec(become_watchdog) }.spawn()?;
        let (Some(tell), Some(hear)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("a watchdog without pipes"));
        };
        is_ready(hear).inspect_err(|_| {
            // No clock is set yet.
            let _ = child.kill();
            let _ = child.wait();
        })?;
        Ok(Self { child, tell })
    }

    /// Whether it lives.
    pub fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Tells it that a clock may be set from now on, or that none is.
    ///
    /// # Errors
    /// If it is gone.
    pub fn tell(&mut self, is_set: bool) -> io::Result<()> {
        self.tell.write_all(&[if is_set { SET } else { RELEASED }])
    }

    /// The identifier of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it, and waits for it: it releases the clock first if one may be set.
    pub fn end(mut self) {
        drop(self.tell);
        // An error would change nothing: the clock is released or noted.
        let _ = self.child.wait();
    }
}

/// Waits for [`READY`].
fn is_ready(mut hear: impl Read + AsRawFd) -> io::Result<()> {
    let mut poll = libc::pollfd { fd: hear.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one initialised structure.
    let is_due = unsafe { libc::poll(&raw mut poll, 1, START_MS) } == 1;
    let mut said = [0];
    let is_ready = is_due && hear.read(&mut said)? == 1 && said[0] == READY;
    if is_ready { Ok(()) } else { Err(io::Error::other("the watchdog of the clock did not become ready")) }
}

/// The watchdog's side: writes [`READY`] to `ready`, waits until its parent has ended, and then
/// releases the clock of the device if it may be set.
///
/// # Errors
/// If there is no such device, or if the clock could not be released; the note in the claim then
/// stays.
pub fn watch(library: &Path, uuid: &str, claim: &Claim, mut ready: impl Write) -> io::Result<()> {
    ignore_ends();
    let nvml = Nvml::open(library).ok_or_else(|| io::Error::other("no NVML"))?;
    let gpu = nvml.gpus().into_iter().find(|gpu| gpu.uuid == uuid);
    let gpu = gpu.ok_or_else(|| io::Error::other("no such device"))?;
    ready.write_all(&[READY])?;
    ready.flush()?;
    if !is_set_at_end(io::stdin()) {
        return Ok(());
    }
    for _ in 0..ATTEMPTS {
        if gpu.release().is_ok() {
            return claim.note(false);
        }
        std::thread::sleep(PAUSE);
    }
    Err(io::Error::other("the clock could not be released"))
}

/// Reads the parent's messages until it ends; returns whether a clock may be set.
fn is_set_at_end(mut hear: impl Read) -> bool {
    let (mut is_set, mut said) = (false, [0]);
    while hear.read_exact(&mut said).is_ok() {
        is_set = said[0] == SET;
    }
    is_set
}

fn ignore_ends() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
        // SAFETY: ignoring a signal runs no code.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}
