//! Sets the clock of a device, with a watchdog and a note that ensure its release.
//!
//! Invariant: before a clock is set, the watchdog knows and the claim notes that it may be set.
//! Both are told that no clock is set only after it was released, or replaced by another tool.

use crate::{Claim, Error, Gpu, Watchdog};
use std::ffi::OsString;
use std::fmt;
use std::io;

/// Why a clock was not set.
#[derive(Debug)]
pub enum NotSet {
    /// NVML refused.
    Refused(Error),
    /// The watchdog is gone, or the note could not be written.
    Unwatched(io::Error),
    /// The helper says why not.
    Denied(String),
}

impl fmt::Display for NotSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => write!(out, "{error}"),
            Self::Unwatched(error) => write!(out, "the watchdog of the clock is gone: {error}"),
            Self::Denied(why) => write!(out, "the helper does not set the clock: {why}"),
        }
    }
}

impl std::error::Error for NotSet {}

/// Sets the clock of a device, and ensures its release however this process ends.
pub trait Sets: Send {
    /// Sets the highest clock, MHz, or releases it.
    ///
    /// # Errors
    /// If NVML refuses, or no watchdog is left to release the clock.
    fn set(&mut self, mhz: Option<u32>) -> Result<(), NotSet>;
    /// Whether a watchdog would release the clock if this process ended now.
    fn is_watched(&mut self) -> bool;
    /// Leaves the clock as it is, because another tool has set its own since.
    ///
    /// # Errors
    /// If that could not be noted.
    fn forget(&mut self) -> Result<(), NotSet>;
    /// Releases the clock if it may be set, and ends. Returns whether a clock may still be set.
    fn end(self: Box<Self>) -> bool;
}

impl Sets for Setter {
    fn set(&mut self, mhz: Option<u32>) -> Result<(), NotSet> {
        self.set(mhz)
    }

    fn is_watched(&mut self) -> bool {
        self.is_watched()
    }

    fn forget(&mut self) -> Result<(), NotSet> {
        self.forget()
    }

    fn end(self: Box<Self>) -> bool {
        (*self).end()
    }
}

/// A claimed device with its watchdog. Dropping it releases the clock.
pub struct Setter {
    gpu: Gpu,
    claim: Claim,
    watchdog: Option<Watchdog>,
    may_be_set: bool,
}

impl Setter {
    /// Starts the watchdog with this command line ([`Watchdog::start`]), and releases a clock that
    /// an earlier run left; the second value says whether there was one.
    ///
    /// # Errors
    /// If the watchdog cannot be started, or the clock that was left cannot be released.
    pub fn start(gpu: Gpu, claim: Claim, watchdog: &[OsString]) -> Result<(Self, bool), NotSet> {
        let watchdog = Watchdog::start(watchdog, &claim).map_err(NotSet::Unwatched)?;
        let was_left = claim.is_noted().map_err(NotSet::Unwatched)?;
        let mut setter = Self { gpu, claim, watchdog: Some(watchdog), may_be_set: was_left };
        setter.release()?;
        Ok((setter, was_left))
    }

    /// The device.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Whether the watchdog lives.
    pub fn is_watched(&mut self) -> bool {
        self.watchdog.as_mut().is_some_and(Watchdog::lives)
    }

    /// The identifier of the watchdog's process.
    pub fn watchdog(&self) -> Option<u32> {
        self.watchdog.as_ref().map(Watchdog::id)
    }

    /// Sets the highest clock, MHz, or releases it.
    ///
    /// # Errors
    /// If NVML refuses, or there is no watchdog. The clock is then released, unless NVML refuses
    /// that too.
    pub fn set(&mut self, mhz: Option<u32>) -> Result<(), NotSet> {
        let Some(mhz) = mhz else { return self.release() };
        self.announce(true).map_err(NotSet::Unwatched)?;
        self.may_be_set = true;
        self.gpu.set_highest(mhz).map_err(|error| {
            // The first error is reported.
            let _ = self.release();
            NotSet::Refused(error)
        })
    }

    /// Releases the clock if it may be set.
    ///
    /// # Errors
    /// If NVML refuses; the note then stays.
    pub fn release(&mut self) -> Result<(), NotSet> {
        if !self.may_be_set {
            return Ok(());
        }
        self.gpu.release().map_err(NotSet::Refused)?;
        self.may_be_set = false;
        // If this fails, the watchdog is gone or releases once more; neither does harm.
        let _ = self.announce(false);
        Ok(())
    }

    /// Leaves the clock as it is, because another tool has set its own since.
    ///
    /// # Errors
    /// If the note cannot be written.
    pub fn forget(&mut self) -> Result<(), NotSet> {
        self.may_be_set = false;
        self.announce(false).map_err(NotSet::Unwatched)
    }

    /// Releases the clock if it may be set, and ends the watchdog, which retries for 10 s if NVML
    /// refuses. Returns whether a clock may still be set.
    pub fn end(mut self) -> bool {
        self.close();
        self.claim.is_noted().unwrap_or(self.may_be_set)
    }

    fn close(&mut self) {
        // If NVML refuses, the watchdog tries again, and the note stays.
        let _ = self.release();
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.end();
        }
    }

    /// Tells the watchdog, and notes in the claim, that a clock may be set or that none is.
    fn announce(&mut self, is_set: bool) -> io::Result<()> {
        if !is_set {
            self.claim.note(false)?;
        }
        let watchdog = self.watchdog.as_mut();
        let watchdog = watchdog.ok_or_else(|| io::Error::other("there is none"))?;
        if !watchdog.lives() {
            return Err(io::Error::other("it has ended"));
        }
        watchdog.tell(is_set)?;
        if is_set { self.claim.note(true) } else { Ok(()) }
    }
}

impl Drop for Setter {
    fn drop(&mut self) {
        self.close();
    }
}
