//! Writing a file that the user named: it is there whole or not at all.
//!
//! The bytes go into a new file beside it, which then takes its name. A symbolic link is followed first, so that it stays
//! one. What is no regular file (a terminal, a FIFO, `/dev/null`) is written to as it is, and never replaced.

use crate::Folder;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Writes the file at `path`, replacing one that is there if `write` goes well.
///
/// # Errors
/// Those of the system and of `write`. Then what was there before is still there. The error does not name the file.
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
    let no_name = || io::Error::new(io::ErrorKind::InvalidInput, "it is no file name");
    let name = path.file_name().ok_or_else(no_name)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = Folder::open(&parent.map_or(PathBuf::from("."), Path::to_owned))?;
    let (unfinished, file) = folder.create_unfinished(0o666)?;
    // Whom the old file was kept from, the new one is kept from.
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

    /// Run as root, a rename would have made a file of the device.
    #[test]
    fn a_device_is_written_to_and_stays_one() {
        write(Path::new("/dev/null"), "text").unwrap();
        assert!(Path::new("/dev/null").symlink_metadata().unwrap().file_type().is_char_device());
        let folder = tempfile::tempdir().unwrap();
        assert!(write(folder.path(), "text").is_err());
        assert!(write(Path::new("/no/such/folder/out"), "text").is_err());
    }
}
