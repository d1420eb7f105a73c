//! The page by which recording is controlled while programs run, and by which the processes of a
//! session share its size limit.
//!
//! `apex run` makes the file `control`; every recorded process maps it and looks at it with relaxed
//! loads; `apex ctl` maps it too and changes it. All fields are independent of one another, so no
//! order among them matters; only a complaint's text is written before it counts as written.

use crate::error::in_file;
use crate::mapping::{Mapping, without_sigxfsz};
use apex_untrusted::Folder;
use std::fs::File;
use std::io::{self, Write};
use std::mem::offset_of;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Name of the file in the session's directory.
pub const CONTROL_FILE: &str = "control";
/// First eight bytes of it.
pub const CONTROL_MAGIC: [u8; 8] = *b"APEXCTL\0";
/// Version of its layout.
pub const CONTROL_VERSION: u32 = 1;
const CONTROL_BYTES: usize = 4096;

/// The kernels that are timed on the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum TimingMode {
    /// None.
    Off = 0,
    /// As many as the budget allows.
    #[default]
    Sampled = 1,
    /// All.
    All = 2,
}

/// The initial settings of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether calls are recorded.
    pub recording: bool,
    /// The kernels that are timed.
    pub timing: TimingMode,
    /// Maximum share of the program's time for sampled timing, in parts per million.
    pub budget_ppm: u32,
    /// Maximum total size of the session's process files; 0 for no limit.
    pub max_bytes: u64,
    /// Maximum total size of stored images; 0 to store neither images nor arguments.
    pub code_max_bytes: u64,
    /// Whether images are stored without machine code, and no arguments.
    pub ptx_only: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            recording: true,
            timing: TimingMode::Sampled,
            budget_ppm: 5000,
            max_bytes: 0,
            code_max_bytes: 0,
            ptx_only: false,
        }
    }
}

/// The control page.
#[repr(C)]
#[derive(Debug)]
pub struct Control {
    magic: [u8; 8],
    version: u32,
    /// 1 while calls are recorded, otherwise 0.
    pub recording: AtomicU32,
    /// A [`TimingMode`].
    pub timing: AtomicU32,
    /// Maximum share of the program's time for sampled timing, in parts per million.
    pub budget_ppm: AtomicU32,
    /// Maximum total size of the files of processes, with records and counts; 0 for no limit.
    pub max_bytes: AtomicU64,
    /// Bytes that they take.
    pub used_bytes: AtomicU64,
    /// Process files made.
    pub processes: AtomicU32,
    /// Changes made through [`Control::set_recording`] and its like.
    pub generation: AtomicU32,
    /// A [`Complaint`].
    complaint: AtomicU32,
    /// Bytes of its text.
    complaint_bytes: AtomicU32,
    complaint_text: [AtomicU8; COMPLAINT_BYTES],
    /// Images and arguments; all 0 in pages of before they were kept.
    pub code: CodeControl,
    /// 1 once the list of checksums was written ([`crate::checksums`]), so that one that is removed
    /// afterwards is missed.
    pub has_checksums: AtomicU64,
}

/// The part of the programs' code that is kept, see [`crate::image`].
#[repr(C)]
#[derive(Debug, Default)]
pub struct CodeControl {
    /// Most bytes of the images' files; 0 where neither images nor arguments are kept.
    pub max_bytes: AtomicU64,
    /// Bytes that they take.
    pub used_bytes: AtomicU64,
    /// Images that were kept.
    pub kept: AtomicU64,
    /// Loads of images that were not stored, because there was no space or they could not be read.
    pub left_out: AtomicU64,
    /// Bytes of these, as far as they are known.
    pub left_out_bytes: AtomicU64,
    /// 1 where only PTX is kept, and no arguments; 0 with `apex run --code`.
    pub ptx_only: AtomicU64,
}

/// The place of the number of process files in the page.
pub(crate) const PROCESSES_AT: u64 = offset_of!(Control, processes) as u64;

const _: () = assert!(
    size_of::<Control>() == 56 + COMPLAINT_BYTES + size_of::<CodeControl>() + 8
        && size_of::<Control>() <= CONTROL_BYTES
);

/// Longest complaint that is kept.
const COMPLAINT_BYTES: usize = 512;

/// The progress of a session's first complaint.
#[repr(u32)]
enum Complaint {
    None = 0,
    BeingWritten = 1,
    Written = 2,
}

impl Control {
    /// Whether calls are recorded.
    #[inline]
    pub fn is_recording(&self) -> bool {
        self.recording.load(Ordering::Relaxed) != 0
    }

    /// Whether images and arguments are kept (`apex run --code`).
    pub fn keeps_code(&self) -> bool {
        self.keeps_ptx() && !self.keeps_only_ptx()
    }

    /// Whether PTX is kept, with or without machine code and arguments.
    pub fn keeps_ptx(&self) -> bool {
        self.code.max_bytes.load(Ordering::Relaxed) != 0
    }

    /// Whether images are kept without machine code.
    pub fn keeps_only_ptx(&self) -> bool {
        self.code.ptx_only.load(Ordering::Relaxed) != 0
    }

    /// Returns the kernels that are timed; an unknown value counts as `Off`.
    #[inline]
    pub fn timing_mode(&self) -> TimingMode {
        match self.timing.load(Ordering::Relaxed) {
            1 => TimingMode::Sampled,
            2 => TimingMode::All,
            _ => TimingMode::Off,
        }
    }

    /// Switches recording on or off.
    pub fn set_recording(&self, on: bool) {
        self.recording.store(on.into(), Ordering::Relaxed);
        self.changed();
    }

    /// Chooses which kernels are timed.
    pub fn set_timing(&self, mode: TimingMode) {
        self.timing.store(mode as u32, Ordering::Relaxed);
        self.changed();
    }

    /// Leaves word why a process, or a part of it, is not recorded, for whoever reads the session.
    /// The first of a session is kept.
    pub fn complain(&self, text: &str) {
        let (none, writing) = (Complaint::None as u32, Complaint::BeingWritten as u32);
        if self.complaint.compare_exchange(none, writing, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let mut bytes = 0;
        for (place, byte) in self.complaint_text.iter().zip(text.bytes()) {
            place.store(byte, Ordering::Relaxed);
            bytes += 1;
        }
        self.complaint_bytes.store(bytes, Ordering::Relaxed);
        self.complaint.store(Complaint::Written as u32, Ordering::Release);
    }

    /// Returns the reason why a process of the session, or a part of it, is not recorded, if one
    /// left word.
    pub fn complaint(&self) -> Option<String> {
        if self.complaint.load(Ordering::Acquire) != Complaint::Written as u32 {
            return None;
        }
        let bytes = self.complaint_bytes.load(Ordering::Relaxed) as usize;
        let text: Vec<_> =
            self.complaint_text.iter().take(bytes).map(|byte| byte.load(Ordering::Relaxed)).collect();
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    fn changed(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes `bytes` out of the session's limit; returns false, and takes nothing, if fewer are
    /// left.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let max = self.max_bytes.load(Ordering::Relaxed);
        let within = |used: u64| match max {
            0 => Some(used.saturating_add(bytes)),
            max => used.checked_add(bytes).filter(|&sum| sum <= max),
        };
        self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
    }

    /// Gives back what [`Control::take`] took.
    pub(crate) fn give_back(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// As [`Control::complain`], for a process that may have no room to map the page of the session in
/// `dir`: then the word is written into its file.
pub fn complain_in(dir: &Path, text: &str) -> io::Result<()> {
    match MappedControl::open(dir) {
        Ok(control) => control.complain(text),
        Err(_) => {
            let file = apex_untrusted::read::open_in_place(&dir.join(CONTROL_FILE))?;
            write_complaint(&file, text)?;
        }
    }
    Ok(())
}

fn write_complaint(file: &File, text: &str) -> io::Result<()> {
    let (mut magic, mut state) = ([0; CONTROL_MAGIC.len()], [0; size_of::<u32>()]);
    file.read_exact_at(&mut magic, 0)?;
    let state_at = offset_of!(Control, complaint) as u64;
    file.read_exact_at(&mut state, state_at)?;
    let is_page = magic == CONTROL_MAGIC && file.metadata()?.len() >= CONTROL_BYTES as u64;
    if !is_page || u32::from_le_bytes(state) != Complaint::None as u32 {
        return Ok(());
    }
    let text = &text.as_bytes()[..text.len().min(COMPLAINT_BYTES)];
    file.write_all_at(text, offset_of!(Control, complaint_text) as u64)?;
    let length = (text.len() as u32).to_le_bytes();
    file.write_all_at(&length, offset_of!(Control, complaint_bytes) as u64)?;
    file.write_all_at(&(Complaint::Written as u32).to_le_bytes(), state_at)
}

/// The page, mapped.
#[derive(Debug)]
pub struct MappedControl(Mapping);

impl MappedControl {
    /// Makes the file in the session directory `dir`, where there must be none yet.
    pub fn create(dir: &Path, settings: Settings) -> io::Result<MappedControl> {
        let folder = Folder::open(dir).map_err(|error| in_file("cannot open", dir, error))?;
        MappedControl::create_in(&folder, settings)
    }

    /// As [`MappedControl::create`], in a folder that is open.
    pub fn create_in(folder: &Folder, settings: Settings) -> io::Result<MappedControl> {
        let make = || {
            let mut page = [0; CONTROL_BYTES];
            page[..8].copy_from_slice(&CONTROL_MAGIC);
            page[8..12].copy_from_slice(&CONTROL_VERSION.to_le_bytes());
            let mut file = folder.create_new(CONTROL_FILE)?;
            if let Err(error) = without_sigxfsz(|| file.write_all(&page)) {
                // Half a page is no session; the error that counts is this one.
                let _ = folder.remove(CONTROL_FILE);
                return Err(error);
            }
            MappedControl::map(&file)
        };
        let path = folder.path().join(CONTROL_FILE);
        let control = make().map_err(|error| in_file("cannot create", &path, error))?;
        control.recording.store(settings.recording.into(), Ordering::Relaxed);
        control.timing.store(settings.timing as u32, Ordering::Relaxed);
        control.budget_ppm.store(settings.budget_ppm, Ordering::Relaxed);
        control.max_bytes.store(settings.max_bytes, Ordering::Relaxed);
        control.code.max_bytes.store(settings.code_max_bytes, Ordering::Relaxed);
        control.code.ptx_only.store(settings.ptx_only.into(), Ordering::Relaxed);
        Ok(control)
    }

    /// Maps the page of the session directory `dir`.
    pub fn open(dir: &Path) -> io::Result<MappedControl> {
        let path = dir.join(CONTROL_FILE);
        apex_untrusted::read::open_in_place(&path)
            .and_then(|file| MappedControl::map(&file))
            .map_err(|error| in_file("cannot open", &path, error))
    }

    fn map(file: &File) -> io::Result<MappedControl> {
        if file.metadata()?.len() < CONTROL_BYTES as u64 {
            return Err(io::Error::other("it is cut off: expected a page of 4096 bytes"));
        }
        let control = MappedControl(Mapping::shared(file.as_fd(), 0, CONTROL_BYTES)?);
        if control.magic != CONTROL_MAGIC {
            return Err(io::Error::other("it is not the control page of an APEX session"));
        }
        if control.version != CONTROL_VERSION {
            let version = control.version;
            return Err(io::Error::other(format!(
                "its version is {version}, this APEX knows {CONTROL_VERSION}: the session was made by another APEX"
            )));
        }
        Ok(control)
    }

    /// Keeps the page mapped for good.
    pub fn leak(self) -> &'static Control {
        // SAFETY: page-aligned, long enough (checked when mapped), any bytes are valid, never
        // unmapped.
        unsafe { self.0.leak().cast().as_ref() }
    }
}

impl Deref for MappedControl {
    type Target = Control;

    fn deref(&self) -> &Control {
        // SAFETY: page-aligned, long enough (checked when mapped), any bytes are valid, mapped
        // while `self` lives.
        unsafe { self.0.base().cast().as_ref() }
    }
}
