//! One run at a time for each device, and a note of a clock that is set.
//!
//! The file is locked as long as a process of the run has it open, its watchdog included: the
//! kernel unlocks it whatever ends them. It has content while a clock may be set, so content without a
//! lock is that of a run of which everything was killed.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

/// The claim of a device.
#[derive(Debug)]
pub struct Claim(File);

impl Claim {
    /// The folder of all claims. It is gone after a restart of the machine, as locks are, and
    /// belongs to root, who alone may set clocks.
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

    /// The claim that a parent handed on under this number.
    ///
    /// # Safety
    /// The number is that of an open file which nothing else in this process uses.
    pub unsafe fn inherited(number: RawFd) -> Self {
        // SAFETY: promised by the caller.
        Self(File::from(unsafe { OwnedFd::from_raw_fd(number) }))
    }

    /// The number of the file.
    pub(crate) fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Whether a clock may be set.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn is_noted(&self) -> io::Result<bool> {
        Ok(self.0.metadata()?.len() > 0)
    }

    /// Notes whether a clock may be set.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn note(&self, is_set: bool) -> io::Result<()> {
        if is_set { self.0.write_all_at(b"set\n", 0) } else { self.0.set_len(0) }
    }
}
