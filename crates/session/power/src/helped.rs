//! A device whose clock a [`Helper`](crate::Helper) sets for this user.

use crate::helper::Lines;
use crate::{Error, NotSet, Sets};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Maximum time to wait for an answer, in which the helper may start a watchdog.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection that has claimed a device. Its end releases the clock.
pub struct Helped {
    stream: UnixStream,
    lines: Lines,
}

impl Helped {
    /// Claims the device with this UUID. The second value says whether a clock that an earlier run
    /// had left was released.
    ///
    /// # Errors
    /// If there is no helper, or if it refuses; the error then has its reason.
    pub fn claim(socket: &Path, uuid: &str) -> io::Result<(Self, bool)> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut this = Self { stream, lines: Lines::default() };
        match this.ask(&format!("claim {uuid}"))?.as_str() {
            "ok" => Ok((this, false)),
            "ok released" => Ok((this, true)),
            other => Err(io::Error::other(other.trim_start_matches("no: ").to_owned())),
        }
    }

    fn ask(&mut self, line: &str) -> io::Result<String> {
        self.stream.write_all(format!("{line}\n").as_bytes())?;
        self.lines.next(&mut self.stream)?.ok_or_else(|| io::ErrorKind::TimedOut.into())
    }

    fn done(&mut self, line: &str) -> Result<(), NotSet> {
        let answer = self.ask(line).map_err(NotSet::Unwatched)?;
        let code = answer.strip_prefix("refused ").and_then(|code| code.parse().ok());
        match (answer.as_str(), code) {
            ("ok", _) => Ok(()),
            (no, _) if no.starts_with("no: ") => Err(NotSet::Denied(no["no: ".len()..].to_owned())),
            (_, Some(code)) => Err(NotSet::Refused(Error { call: "nvmlDeviceSetGpuLockedClocks", code })),
            _ => Err(NotSet::Unwatched(io::Error::other(answer))),
        }
    }
}

impl Sets for Helped {
    fn set(&mut self, mhz: Option<u32>) -> Result<(), NotSet> {
        match mhz {
            Some(mhz) => self.done(&format!("set {mhz}")),
            None => self.done("release"),
        }
    }

    fn is_watched(&mut self) -> bool {
        let mut byte = 0_u8;
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        // SAFETY: the socket is open, and there is room for a byte.
        let read = unsafe { libc::recv(self.stream.as_raw_fd(), (&raw mut byte).cast(), 1, flags) };
        read < 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock
    }

    fn forget(&mut self) -> Result<(), NotSet> {
        self.done("forget")
    }

    fn end(mut self: Box<Self>) -> bool {
        // A helper that is gone has a watchdog that releases the clock.
        self.ask("end").is_ok_and(|answer| answer == "left")
    }
}
