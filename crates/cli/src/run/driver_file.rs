//! The CPU device as a file, for programs that look for the driver on the disk.
//!
//! Some programs do not ask the dynamic linker for `libcuda.so.1`: they look for a file of that name
//! in the folders of `LD_LIBRARY_PATH` and of the system, and open it by its path. On a machine
//! without a GPU there is none. So with the CPU device, `LD_LIBRARY_PATH` ends with a folder that
//! contains `libcuda.so` and `libcuda.so.1`: links to the injected library, which the process has
//! loaded already. The folder lies in the user's cache and stays there, because programs may outlive
//! `apex run`. Nothing else in it could be found by a search for a library.

use super::embedded;
use super::libraries::{Libraries, RECORDER};
use anyhow::{Context, bail};
use apex_untrusted::{Folder, shown};
use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Variable with the folders in which the dynamic linker, and such programs, look first.
pub const SEARCH: &str = "LD_LIBRARY_PATH";

/// The names by which programs look for the driver.
const NAMES: [&str; 2] = ["libcuda.so", "libcuda.so.1"];

/// The value of [`SEARCH`] with which a program finds the file; `None` where the cache cannot have
/// it. Programs that ask for the name do not need it.
pub fn search_path(libraries: &Libraries) -> Option<OsString> {
    let recorder = libraries.folder().join(RECORDER);
    let folder = made(&embedded::cache().ok()?, &recorder).ok()?;
    extended(std::env::var_os(SEARCH).as_deref(), &folder)
}

/// The folder with links to this library, which is made if it is not there yet.
fn made(cache: &Path, recorder: &Path) -> anyhow::Result<PathBuf> {
    let above = cache.join("apex");
    std::fs::create_dir_all(&above)?;
    let mut hasher = DefaultHasher::new();
    recorder.hash(&mut hasher);
    let path = above.join(format!("driver-{:016x}", hasher.finish()));
    let folder = match Folder::make(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Folder::open(&path),
        made => made,
    }?;
    if let Some(why) = folder.refusal()? {
        bail!("{}: {why}", shown(&path));
    }
    for name in NAMES {
        let link = path.join(name);
        if std::fs::read_link(&link).is_ok_and(|to| to == recorder) {
            continue;
        }
        // Programs that run may be looking: the link is never gone.
        let new = path.join(format!("{name}.{}", std::process::id()));
        symlink(recorder, &new).with_context(|| shown(&new))?;
        std::fs::rename(&new, &link).with_context(|| shown(&link))?;
    }
    Ok(path)
}

/// The list with the folder at its end; `None` if the folder's name cannot stand in it.
fn extended(list: Option<&OsStr>, folder: &Path) -> Option<OsString> {
    let separates = |byte: &u8| b":;".contains(byte);
    if folder.as_os_str().as_bytes().iter().any(separates) {
        return None;
    }
    let mut list = list.unwrap_or_default().to_owned();
    if list.as_bytes().split(separates).any(|entry| entry == folder.as_os_str().as_bytes()) {
        return Some(list);
    }
    // An empty entry would mean the current folder.
    if !list.is_empty() {
        list.push(":");
    }
    list.push(folder);
    Some(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_has_both_names_and_wrong_links_are_replaced() {
        let cache = tempfile::tempdir().unwrap();
        let recorder = cache.path().join(RECORDER);
        std::fs::write(&recorder, "library").unwrap();
        let folder = made(cache.path(), &recorder).unwrap();
        std::fs::remove_file(folder.join(NAMES[0])).unwrap();
        symlink("/nowhere", folder.join(NAMES[0])).unwrap();
        assert_eq!(made(cache.path(), &recorder).unwrap(), folder);
        for name in NAMES {
            assert_eq!(std::fs::read(folder.join(name)).unwrap(), b"library", "{name}");
        }
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), NAMES.len(), "nothing is left over");
        assert_ne!(made(cache.path(), Path::new("/other/libapex.so")).unwrap(), folder);
    }

    #[test]
    fn the_folder_comes_last_once_and_adds_no_other() {
        let folder = Path::new("/cache/driver");
        for (list, expected) in [
            (None, "/cache/driver"),
            (Some(""), "/cache/driver"),
            (Some("/a:/b"), "/a:/b:/cache/driver"),
            (Some("/cache/driver:/b"), "/cache/driver:/b"),
        ] {
            assert_eq!(extended(list.map(OsStr::new), folder).unwrap(), expected, "{list:?}");
        }
        assert_eq!(extended(None, Path::new("/a:b")), None);
    }
}
