//! A lock file for each device: one run at a time, and a note that a clock is set.
//!
//! The file stays locked while any process of the run, its watchdog included, has it open; the
//! kernel unlocks it however they end. The file is not empty while a clock may be set, so a
//! non-empty file without a lock is left from a run whose processes were all killed.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

/// The claim of a device.
#[derive(Debug)]
pub struct Claim(File);

impl Claim {
    /// The folder of all claims. Like locked clocks, it does not survive a restart of the machine.
    /// It belongs to root, the only user who may set clocks.
    pub const FOLDER: &str = "/run/apex-power";

    /// Claims a device for this process; `None` if another one has it.
    ///
    /// # Errors
    /// If the folder or the file cannot be made.
    pub fn take(folder: &Path, uuid: &str) -> io::Result<Option<Self>> {
        if uuid.is_empty() || !uuid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Err(io::Error::other("the device has no UUID"));
        }
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.custom_flags(libc::O_NOFOLLOW).open(folder.join(uuid))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(std::fs::TryLockError::WouldBlock) => Ok(None),
            Err(std::fs::TryLockError::Error(error)) => Err(error),
        }
    }

    /// The claim that a parent process passed on as this file descriptor.
    ///
    /// # Safety
    /// `number` is an open file descriptor that nothing else in this process uses.
    pub unsafe fn inherited(number: RawFd) -> Self {
        // SAFETY: promised by the caller.
        Self(File::from(unsafe { OwnedFd::from_raw_fd(number) }))
    }

    /// The file descriptor.
    pub(crate) fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Whether the note says that a clock may be set.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn is_noted(&self) -> io::Result<bool> {
        Ok(self.0.metadata()?.len() > 0)
    }

    /// Writes the note: whether a clock may be set.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn note(&self, is_set: bool) -> io::Result<()> {
        if is_set { self.0.write_all_at(b"set\n", 0) } else { self.0.set_len(0) }
    }
}
