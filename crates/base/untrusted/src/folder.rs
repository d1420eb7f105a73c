//! A folder that is held open, and files that are created in it.
//!
//! A user who can write to a folder can put a symbolic link where a program is about to create a
//! file, and a user who can write to a parent folder can exchange the folder. A [`Folder`] is
//! therefore a descriptor: every name is looked up relative to it, a file is created only if there
//! is none (`O_EXCL`), no link is followed (`O_NOFOLLOW`), and [`Folder::refusal`] says who else
//! could change the contents.

use crate::text;
use std::ffi::{CStr, CString, OsStr};
use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Most names that are tried for an unfinished file.
const ATTEMPTS: u32 = 100;

/// An open folder.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    descriptor: File,
}

impl Folder {
    /// Opens a folder. Symbolic links in the path are followed.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(path: &Path) -> io::Result<Folder> {
        Folder::open_with(path, 0)
    }

    /// Makes a folder that only its owner may use, and opens it.
    ///
    /// # Errors
    /// Those of the system, for example because the name is taken. Another error if somebody puts
    /// another folder in its place meanwhile.
    pub fn make(path: &Path) -> io::Result<Folder> {
        std::fs::DirBuilder::new().mode(0o700).create(path)?;
        let folder = Folder::open_with(path, libc::O_NOFOLLOW)?;
        // The mode is not looked at: some file systems keep none.
        if folder.metadata()?.uid() != effective_user() {
            return Err(io::Error::other(
                "another user put a folder in the place of the one that was just made",
            ));
        }
        Ok(folder)
    }

    fn open_with(path: &Path, flags: i32) -> io::Result<Folder> {
        let flags = flags | libc::O_DIRECTORY;
        let descriptor = File::options().read(true).custom_flags(flags).open(path)?;
        Ok(Folder { path: path.to_owned(), descriptor })
    }

    /// The path by which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces [`Folder::path`] by the absolute path without links.
    ///
    /// # Errors
    /// Those of the system. Another error if the path leads to another folder now.
    pub fn resolve(&mut self) -> io::Result<()> {
        let path = self.path.canonicalize()?;
        if identity(&path.metadata()?) != identity(&self.metadata()?) {
            return Err(io::Error::other("another folder was put in its place"));
        }
        self.path = path;
        Ok(())
    }

    /// The folder's metadata.
    ///
    /// # Errors
    /// Those of the system.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.descriptor.metadata()
    }

    /// Says why files should not be made in the folder: somebody else could replace them. `None` if
    /// nobody could.
    ///
    /// # Errors
    /// Those of the system.
    pub fn refusal(&self) -> io::Result<Option<String>> {
        let found = self.metadata()?;
        let private = private_group();
        Ok(refusal(found.uid(), found.gid(), found.mode(), effective_user(), private))
    }

    /// Makes a file that only its owner may use, and opens it for reading and writing.
    ///
    /// # Errors
    /// Those of the system: there may be something of this name already.
    pub fn create_new(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        self.open_at(name.as_ref(), libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, 0o600)
    }

    /// Writes a file with these bytes under this name. It replaces the file of that name, or the
    /// link itself where the name is a link. At any moment, either the whole old file or the whole
    /// new one is there. `mode` holds the permissions, which the process's mask may restrict.
    ///
    /// # Errors
    /// Those of the system. Then the old file is still there.
    pub fn replace(&self, name: impl AsRef<OsStr>, mode: u32, bytes: &[u8]) -> io::Result<()> {
        let (unfinished, mut file) = self.create_unfinished(mode)?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        self.put(&unfinished, name.as_ref(), written)?;
        self.descriptor.sync_all()
    }

    /// Makes a file under a name that nobody uses, to be [put](Folder::put) in the place of
    /// another.
    pub(crate) fn create_unfinished(&self, mode: u32) -> io::Result<(String, File)> {
        let pid = std::process::id();
        let mut failure = io::Error::from(io::ErrorKind::AlreadyExists);
        for attempt in 0..ATTEMPTS {
            let unfinished = format!(".apex-{pid}-{attempt}.part");
            match self.open_at(unfinished.as_ref(), libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, mode) {
                Ok(file) => return Ok((unfinished, file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => failure = error,
                Err(error) => return Err(error),
            }
        }
        Err(failure)
    }

    /// Gives an unfinished file its name if all went well; removes it if not.
    pub(crate) fn put(&self, unfinished: &str, name: &OsStr, written: io::Result<()>) -> io::Result<()> {
        let done = written.and_then(|()| self.rename(unfinished.as_ref(), name));
        if done.is_err() {
            // The error that counts is the first one.
            let _ = self.remove(unfinished);
        }
        done
    }

    /// Removes a file.
    ///
    /// # Errors
    /// Those of the system.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        let name = CString::new(name)?;
        // SAFETY: the descriptor is open, the name ends with a zero byte.
        result(unsafe { libc::unlinkat(self.descriptor.as_raw_fd(), name.as_ptr(), 0) }).map(drop)
    }

    fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        let (from, to) = (CString::new(from.as_bytes())?, CString::new(to.as_bytes())?);
        let here = self.descriptor.as_raw_fd();
        // SAFETY: the descriptor is open, both names end with a zero byte.
        result(unsafe { libc::renameat(here, from.as_ptr(), here, to.as_ptr()) }).map(drop)
    }

    fn open_at(&self, name: &OsStr, flags: i32, mode: u32) -> io::Result<File> {
        let name = CString::new(name.as_bytes())?;
        let flags = flags | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        // SAFETY: the descriptor is open, the name ends with a zero byte.
        let opened = unsafe { libc::openat(self.descriptor.as_raw_fd(), name.as_ptr(), flags, mode) };
        // SAFETY: a new descriptor, which nobody else owns.
        result(opened).map(|descriptor| unsafe { File::from_raw_fd(descriptor) })
    }
}

fn result(returned: i32) -> io::Result<i32> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// Device and inode, which identify a file. Hard links to a file share them.
pub fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// Describes who else could change the content of a folder of this owner, group and mode; `None` if
/// nobody could but root. `private` is the group that the user `user` alone belongs to, if there is
/// one.
fn refusal(owner: u32, group: u32, mode: u32, user: u32, private: Option<u32>) -> Option<String> {
    if owner != user {
        let name = account(owner).map_or(String::new(), |(name, _)| {
            format!(" ({})", text::shown(OsStr::from_bytes(name.as_bytes())))
        });
        return Some(format!("it belongs to user {owner}{name}"));
    }
    if mode & 0o002 != 0 {
        return Some("every user may write to it".to_owned());
    }
    // With an access list, the group's bits are the most that anybody on the list may do.
    (mode & 0o020 != 0 && private != Some(group))
        .then(|| "the members of its group may write to it".to_owned())
}

fn effective_user() -> u32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() }
}

/// The group that the user alone belongs to, as many systems make one for each user: it is the
/// user's first group, has the user's name and no other member. (A first group that is shared lists
/// no members either, hence the name.)
fn private_group() -> Option<u32> {
    let (name, group) = account(effective_user())?;
    is_private(group, &name).then_some(group)
}

/// A user's name and first group.
fn account(user: u32) -> Option<(CString, u32)> {
    let mut buffer = vec![0; BUFFER];
    // SAFETY: `passwd` is plain data, for which zeros are valid.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: every pointer is to a local that lives on; the length is the buffer's.
    unsafe { libc::getpwuid_r(user, &raw mut entry, buffer.as_mut_ptr(), BUFFER, &raw mut found) };
    // SAFETY: the entry was found, so its name points to a string in the buffer.
    (!found.is_null()).then(|| (unsafe { CStr::from_ptr(entry.pw_name) }.to_owned(), entry.pw_gid))
}

/// Whether a group has this name, and no member of another.
fn is_private(group: u32, name: &CStr) -> bool {
    let mut buffer = vec![0; BUFFER];
    // SAFETY: `group` is plain data, for which zeros are valid.
    let mut entry: libc::group = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: every pointer is to a local that lives on; the length is the buffer's.
    unsafe { libc::getgrgid_r(group, &raw mut entry, buffer.as_mut_ptr(), BUFFER, &raw mut found) };
    if found.is_null() {
        return false;
    }
    // SAFETY: the entry was found, so its name points to a string in the buffer, and its members to
    // a list of pointers to such strings that ends with null.
    unsafe {
        let mut member = entry.gr_mem;
        while !(*member).is_null() {
            if CStr::from_ptr(*member) != name {
                return false;
            }
            member = member.add(1);
        }
        CStr::from_ptr(entry.gr_name) == name
    }
}

/// Room for an entry of the user or group data base.
const BUFFER: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn what_was_planted_is_neither_followed_nor_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        let folder = Folder::make(&dir.path().join("session")).unwrap();
        let inside = |name: &str| folder.path().join(name);
        symlink(&victim, inside("soft")).unwrap();
        std::fs::hard_link(&victim, inside("hard")).unwrap();
        symlink(dir.path().join("not there"), inside("dangling")).unwrap();
        for name in ["soft", "hard", "dangling"] {
            let error = folder.create_new(name).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{name}");
            folder.replace(name, 0o600, b"new").unwrap();
            assert!(inside(name).symlink_metadata().unwrap().is_file(), "{name}");
            assert_eq!(std::fs::read(inside(name)).unwrap(), b"new");
        }
        // The names of unfinished files, as far as they can be foreseen.
        for attempt in 0..3 {
            symlink(&victim, inside(&format!(".apex-{}-{attempt}.part", std::process::id()))).unwrap();
        }
        folder.replace("meta", 0o600, b"new").unwrap();
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
        assert!(!dir.path().join("not there").exists());
    }

    /// The folder that was opened is used, even if its path leads elsewhere now.
    #[test]
    fn a_folder_that_was_exchanged_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved, other) =
            (dir.path().join("session"), dir.path().join("moved"), dir.path().join("other"));
        let mut folder = Folder::make(&path).unwrap();
        std::fs::rename(&path, &moved).unwrap();
        std::fs::create_dir(&other).unwrap();
        symlink(&other, &path).unwrap();
        folder.replace("meta", 0o600, b"new").unwrap();
        folder.create_new("file").unwrap();
        assert_eq!(std::fs::read_dir(&other).unwrap().count(), 0);
        assert_eq!(std::fs::read_dir(&moved).unwrap().count(), 2);
        assert!(folder.resolve().unwrap_err().to_string().contains("another folder"));
        assert_eq!(Folder::make(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn what_cannot_be_replaced_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("meta/full")).unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        assert!(folder.replace("meta", 0o600, b"new").is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn folders_of_others_are_refused() {
        let (me, mine, private) = (1000, 1000, Some(1000));
        for (owner, group, mode, refused) in [
            (me, mine, 0o700, None),
            (me, mine, 0o755, None),
            (me, mine, 0o775, None),
            (me, 50, 0o755, None),
            (me, 50, 0o2755, None),
            (0, 0, 0o755, Some("it belongs to user 0")),
            (2000, mine, 0o700, Some("it belongs to user 2000")),
            (me, mine, 0o777, Some("every user")),
            (me, mine, 0o1777, Some("every user")),
            (me, 50, 0o775, Some("its group")),
            (me, 50, 0o2770, Some("its group")),
        ] {
            let found = refusal(owner, group, mode, me, private);
            match refused {
                None => assert_eq!(found, None, "{owner} {group} {mode:o}"),
                Some(why) => assert!(found.as_ref().is_some_and(|it| it.contains(why)), "{found:?}"),
            }
        }
        assert!(refusal(me, mine, 0o775, me, None).is_some(), "a group of one's name that others are in");
        assert!(refusal(me, mine, 0o700, 0, Some(0)).is_some(), "root in a user's folder");
    }

    #[test]
    fn a_new_folder_is_ones_own() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::make(&dir.path().join("new")).unwrap();
        assert_eq!(folder.refusal().unwrap(), None);
        let everybody = std::fs::Permissions::from_mode(0o1777);
        std::fs::set_permissions(folder.path(), everybody).unwrap();
        assert!(folder.refusal().unwrap().unwrap().contains("every user"));
    }
}
