//! Images: code that programs load, stored once per session: PTX by default, all that describes
//! launches with `apex run --code`.
//!
//! The file `<hash>.image` contains one image as the recorder packed it; this module knows only its
//! name and size. The name is a hash of the content, so the processes of a session share the file,
//! and the first one that loads the image writes it. If a process is killed meanwhile, an
//! incomplete file remains, which cannot be unpacked. [`CodeControl`] limits the size of all images
//! together and counts those left out; their bytes also count towards the session's limit.

use crate::control::{CodeControl, Control};
use crate::joined::folders;
use crate::mapping::without_sigxfsz;
use apex_untrusted::{Folder, read};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

/// File name extension.
pub const EXTENSION: &str = "image";
/// The default for [`CodeControl::max_bytes`] with `--code`.
pub const DEFAULT_MAX_BYTES: u64 = 256 << 20;
/// The same without it, where only PTX is stored.
pub const PTX_MAX_BYTES: u64 = 16 << 20;
/// Maximum size of a file that is read.
const MOST_BYTES: u64 = 1 << 31;

/// The name of an image's file.
pub fn file_name(hash: u128) -> String {
    format!("{hash:032x}.{EXTENSION}")
}

/// Writes an image that the session in `dir` does not have yet.
///
/// # Errors
/// If it cannot be written, or a limit leaves no room; then nothing of it stays.
pub fn keep(dir: &Path, control: &Control, hash: u128, packed: &[u8]) -> io::Result<()> {
    if keep_file(dir, control, &file_name(hash), packed)? {
        control.code.kept.fetch_add(1, Relaxed);
    }
    Ok(())
}

/// Writes a file named by its content that the session in `dir` does not have yet, within the
/// limits of `--code` and of the session; false if it was there.
pub(crate) fn keep_file(dir: &Path, control: &Control, name: &str, content: &[u8]) -> io::Result<bool> {
    let folder = Folder::open(dir)?;
    if dir.join(name).symlink_metadata().is_ok() {
        return Ok(false);
    }
    let bytes = content.len() as u64;
    if !control.code.take(bytes) {
        return Err(io::Error::other("the limit of --code is reached"));
    }
    let undo = |error| {
        control.code.used_bytes.fetch_sub(bytes, Relaxed);
        Err(error)
    };
    if !control.take(bytes) {
        return undo(io::Error::other("the session's size limit is reached"));
    }
    let written = folder.create_new(name).and_then(|mut file| {
        without_sigxfsz(|| file.write_all(content)).inspect_err(|_| {
            // The error that counts is the first one.
            let _ = folder.remove(name);
        })
    });
    match written {
        Ok(()) => Ok(true),
        Err(error) => {
            control.give_back(bytes);
            // Another process of the session loaded it first.
            if error.kind() == io::ErrorKind::AlreadyExists { undo(error).or(Ok(false)) } else { undo(error) }
        }
    }
}

/// Reads the packed image of this hash in the session in `dir`.
///
/// # Errors
/// If there is none, or it cannot be read.
pub fn read(dir: &Path, hash: u128) -> io::Result<Vec<u8>> {
    let found = folders(dir).into_iter().map(|dir| dir.join(file_name(hash))).find(|path| path.exists());
    read::read(&found.unwrap_or_else(|| dir.join(file_name(hash))), MOST_BYTES)
}

impl CodeControl {
    /// Takes `bytes` out of the limit; returns false, and takes nothing, if fewer are left.
    fn take(&self, bytes: u64) -> bool {
        let max = self.max_bytes.load(Relaxed);
        let within = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= max);
        self.used_bytes.fetch_update(Relaxed, Relaxed, within).is_ok()
    }

    /// Gives back bytes of an image that is removed.
    pub fn give_back(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Relaxed);
        self.kept.fetch_sub(1, Relaxed);
    }

    /// Counts an image of `bytes` bytes that is not kept.
    pub fn leave_out(&self, bytes: u64) {
        self.left_out.fetch_add(1, Relaxed);
        self.left_out_bytes.fetch_add(bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MappedControl;
    use crate::control::Settings;

    fn session(code_max_bytes: u64, max_bytes: u64) -> (tempfile::TempDir, MappedControl) {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings { code_max_bytes, max_bytes, ..Settings::default() };
        let control = MappedControl::create(dir.path(), settings).unwrap();
        (dir, control)
    }

    #[test]
    fn an_image_is_kept_once_within_the_limit() {
        let (dir, control) = session(100, 0);
        for _ in 0..2 {
            keep(dir.path(), &control, 7, &[1; 60]).unwrap();
        }
        assert_eq!(read(dir.path(), 7).unwrap(), [1; 60]);
        let error = keep(dir.path(), &control, 8, &[2; 60]).unwrap_err();
        assert!(error.to_string().contains("--code"), "{error}");
        assert!(read(dir.path(), 8).is_err());
        keep(dir.path(), &control, 9, &[3; 40]).unwrap();
        let load = |field: &std::sync::atomic::AtomicU64| field.load(Relaxed);
        assert_eq!((load(&control.code.used_bytes), load(&control.code.kept)), (100, 2));
    }

    #[test]
    fn the_sessions_limit_holds_too() {
        let (dir, control) = session(1000, 50);
        assert!(keep(dir.path(), &control, 7, &[1; 60]).is_err());
        assert_eq!(control.code.used_bytes.load(Relaxed), 0);
        keep(dir.path(), &control, 7, &[1; 50]).unwrap();
    }
}
