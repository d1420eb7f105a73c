//! Opening files for reading: regular ones within a stated size, and nothing else.
//!
//! Opening a FIFO waits for a writer, opening a device may start something, and a sparse file costs
//! its maker nothing and its reader all memory. This module therefore checks a file before it opens
//! it and again afterwards, and it never reads more than the stated limit.
//! Symbolic links are followed: users keep their data behind them.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// `session.json`: the longest command line that Linux takes, with every byte escaped, and room.
pub const SESSION_JSON: u64 = 64 << 20;
/// A process file: 34 billion launches.
pub const PROCESS_FILE: u64 = 1 << 40;
/// A file of counts: some 300,000 launches.
pub const COUNTS: u64 = 256 << 20;
/// A model: a hundred times the largest that is shipped.
pub const MODEL: u64 = 256 << 20;
/// A PTX file.
pub const PTX: u64 = 256 << 20;
/// A program or library that holds device code.
pub const PROGRAM: u64 = 4 << 30;
/// A manifest of a data set.
pub const MANIFEST: u64 = 16 << 20;
/// A table of a data set: some five million launches.
pub const TABLE: u64 = 1 << 30;

/// Opens a regular file of at most `limit` bytes for reading.
///
/// # Errors
/// Those of the system. Another error if it is not a regular file, or larger than `limit`. No error
/// names the file.
pub fn open(path: &Path, limit: u64) -> io::Result<File> {
    checked(path, OpenOptions::new().read(true), limit)
}

/// Opens a regular file for reading and writing in place. A symbolic link is refused: what it leads
/// to is not what the caller means to change.
///
/// # Errors
/// As [`open`].
pub fn open_in_place(path: &Path) -> io::Result<File> {
    if path.symlink_metadata()?.is_symlink() {
        return Err(refused("it is a symbolic link"));
    }
    checked(path, OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW), u64::MAX)
}

/// Reads a regular file of at most `limit` bytes.
///
/// # Errors
/// As [`open`].
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // The file may grow while it is read.
    open(path, limit)?.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(too_large(bytes.len() as u64, limit)) } else { Ok(bytes) }
}

/// Reads a regular file of at most `limit` bytes, which are UTF-8.
///
/// # Errors
/// As [`open`]. Another error if the bytes are not UTF-8.
pub fn read_to_string(path: &Path, limit: u64) -> io::Result<String> {
    let invalid = |_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text");
    String::from_utf8(read(path, limit)?).map_err(invalid)
}

fn checked(path: &Path, options: &OpenOptions, limit: u64) -> io::Result<File> {
    // The first check precedes opening, because opening a device can have effects. The second one
    // looks at what was opened.
    regular(&path.metadata()?, limit)?;
    let mut options = options.clone();
    // If a FIFO has taken the file's place since, this does not wait for its other end.
    let file = options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    regular(&file.metadata()?, limit)?;
    Ok(file)
}

fn regular(found: &Metadata, limit: u64) -> io::Result<()> {
    if !found.is_file() {
        return Err(refused(&format!("it is {}, not a regular file", kind(found.file_type()))));
    }
    if found.len() > limit { Err(too_large(found.len(), limit)) } else { Ok(()) }
}

fn kind(found: FileType) -> &'static str {
    match found {
        _ if found.is_dir() => "a folder",
        _ if found.is_fifo() => "a FIFO",
        _ if found.is_socket() => "a socket",
        _ => "a device",
    }
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

fn too_large(found: u64, limit: u64) -> io::Error {
    let why = format!("it has {}, and at most {} are read", size(found), size(limit));
    io::Error::new(io::ErrorKind::FileTooLarge, why)
}

/// Bytes in the largest unit that leaves at least one of them, to the nearest tenth.
///
/// Integers alone: what writes floating-point numbers would be 20 kB of the injected library.
fn size(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let step = (u64::BITS - 1 - bytes.max(1).leading_zeros()) / 10;
    let (unit, name) = (1u128 << (10 * step), units[step as usize]);
    let tenths = (10 * u128::from(bytes) + unit / 2) / unit;
    match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole} {name}"),
        (whole, tenth) => format!("{whole}.{tenth} {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    fn fifo(path: &Path) {
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name ends with a zero byte.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    }

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, link) = (folder.path().join("pipe"), folder.path().join("link"));
        fifo(&pipe);
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        for (path, what) in [
            (pipe.as_path(), "a FIFO"),
            (&link, "a FIFO"),
            (folder.path(), "a folder"),
            (Path::new("/dev/zero"), "a device"),
        ] {
            for error in [read(path, 10).map(drop), open(path, 10).map(drop)] {
                let error = error.unwrap_err().to_string();
                assert_eq!(error, format!("it is {what}, not a regular file"), "{}", path.display());
            }
        }
    }

    #[test]
    fn a_size_beyond_the_limit_is_refused_with_both() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let error = read(&path, 64 << 20).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "it has 1 TiB, and at most 64 MiB are read");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        assert_eq!(read(&path, 4).unwrap_err().to_string(), "it has 5 bytes, and at most 4 bytes are read");
    }

    /// A file that claims to be empty, and is not, is bounded too.
    #[test]
    fn what_lies_about_its_size_is_bounded() {
        let error = read(Path::new("/proc/self/maps"), 16).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn links_are_followed_for_reading_and_refused_for_writing() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, "text").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(read_to_string(&link, 100).unwrap(), "text");
        assert!(open_in_place(&file).is_ok());
        assert_eq!(open_in_place(&link).unwrap_err().to_string(), "it is a symbolic link");
    }

    #[test]
    fn the_page_has_the_limits() {
        let page = include_str!("../../../../docs/untrusted.md");
        for (file, limit) in [
            ("`session.json`", SESSION_JSON),
            ("a process file", PROCESS_FILE),
            ("a file of counts", COUNTS),
            ("a model", MODEL),
            ("PTX", PTX),
            ("the manifest", MANIFEST),
            ("a table", TABLE),
        ] {
            let line = page.lines().find(|line| line.starts_with(&format!("| {file}")));
            assert!(line.is_some_and(|line| line.contains(&format!("| {}", size(limit)))), "{file}");
        }
    }

    #[test]
    fn sizes_have_units() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (2047, "2 KiB"),
            (1 << 40, "1 TiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
