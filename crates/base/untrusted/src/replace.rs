//! Writes files that are either complete or absent.
//!
//! The bytes go into a new file beside the old one, which then takes its name. In a path that a
//! user typed ([`file()`]), a symbolic link is followed first, so that it remains a link; a file
//! that APEX names itself ([`bytes`]) replaces a link. A file that is not regular (a terminal, a
//! FIFO, `/dev/null`) is written to and never replaced.

use crate::Folder;
use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes a file with these bytes at `path`. It replaces the file that is there, or the link itself
/// where `path` is a link.
///
/// # Errors
/// Those of the system. Then what was there before is still there. The error does not name the
/// file.
pub fn bytes(path: &Path, bytes: &[u8]) -> io::Result<()> {
    in_mode(path, 0o666, bytes)
}

/// As [`bytes`], with a mode from which the umask is taken, for what others must not write.
///
/// # Errors
/// As [`bytes`].
pub fn in_mode(path: &Path, mode: libc::mode_t, bytes: &[u8]) -> io::Result<()> {
    let (folder, name) = place(path)?;
    folder.replace(name, mode, bytes)
}

/// Opens a regular file for reading and writing in place, or makes an empty one. A link is refused.
///
/// # Errors
/// Those of the system. Another error if something else is there. No error names the file.
pub fn open_or_create(path: &Path) -> io::Result<File> {
    let (folder, name) = place(path)?;
    match folder.create_new(name) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => crate::read::open_in_place(path),
        made => made,
    }
}

/// The folder that a file lies in, open, and its name there.
fn place(path: &Path) -> io::Result<(Folder, &OsStr)> {
    let no_name = || io::Error::new(io::ErrorKind::InvalidInput, "it is not a file name");
    let name = path.file_name().ok_or_else(no_name)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok((Folder::open(parent.unwrap_or(Path::new(".")))?, name))
}

/// Writes the file that a user named, replacing one that is there if `write` goes well.
///
/// # Errors
/// Those of the system and of `write`. Then what was there before is still there. The error does
/// not name the file.
pub fn file(path: &Path, write: impl FnOnce(File) -> io::Result<()>) -> io::Result<()> {
    let found = path.metadata().ok();
    if found.as_ref().is_some_and(|found| !found.is_file()) {
        // A folder cannot be opened for writing, and says so.
        return write(OpenOptions::new().write(true).custom_flags(libc::O_NOCTTY).open(path)?);
    }
    let path = if found.is_some() { path.canonicalize()? } else { path.to_owned() };
    into_folder(&path, found.as_ref(), write)
}

fn into_folder(
    path: &Path,
    found: Option<&Metadata>,
    write: impl FnOnce(File) -> io::Result<()>,
) -> io::Result<()> {
    let (folder, name) = place(path)?;
    let (unfinished, file) = folder.create_unfinished(0o666)?;
    // The new file gets the permissions of the old one.
    let kept = found.map_or(Ok(()), |found| file.set_permissions(found.permissions()));
    folder.put(&unfinished, name, kept.and_then(|()| write(file)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

    fn write(path: &Path, text: &str) -> io::Result<()> {
        file(path, |mut out| out.write_all(text.as_bytes()))
    }

    #[test]
    fn a_failure_leaves_nothing_and_keeps_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.csv");
        write(&path, "old").unwrap();
        let error = file(&path, |mut out| {
            out.write_all(b"half")?;
            Err(io::Error::other("the disk is on fire"))
        });
        assert!(error.unwrap_err().to_string().contains("on fire"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        write(&path, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn links_stay_and_modes_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("file"), folder.path().join("link"));
        write(&path, "old").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        symlink("file", &link).unwrap();
        write(&link, "new").unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn files_of_our_choice_take_the_place_of_links() {
        let folder = tempfile::tempdir().unwrap();
        let (victim, link) = (folder.path().join("victim"), folder.path().join("link"));
        std::fs::write(&victim, "precious").unwrap();
        symlink("victim", &link).unwrap();
        bytes(&link, b"new").unwrap();
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
        assert_eq!(std::fs::read_to_string(&link).unwrap(), "new");
    }

    /// As root, a rename would have replaced the device by a file.
    #[test]
    fn a_device_is_written_to_and_stays_one() {
        write(Path::new("/dev/null"), "text").unwrap();
        assert!(Path::new("/dev/null").symlink_metadata().unwrap().file_type().is_char_device());
        let folder = tempfile::tempdir().unwrap();
        assert!(write(folder.path(), "text").is_err());
        assert!(write(Path::new("/no/such/folder/out"), "text").is_err());
    }
}
