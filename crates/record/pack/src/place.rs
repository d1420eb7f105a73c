//! Finds the place of an archive's file in a session's folder.

use apex_trace::{MOST_MEMBERS, member_dir};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Most folders around a file.
const DEEPEST: usize = 32;

/// The place of a file: the folder in the archive that is the session, the member whose file it is,
/// and its name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub root: PathBuf,
    pub member: Option<usize>,
    pub name: std::ffi::OsString,
}

impl Place {
    /// The place of the file with this path in the archive.
    ///
    /// # Errors
    /// Says why such a file is not written.
    pub fn of(path: &[u8]) -> Result<Self, String> {
        if path.contains(&0) || path.starts_with(b"/") {
            return Err("its path is absolute or has a zero byte".to_owned());
        }
        let mut parts: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
        parts.retain(|part| !part.is_empty() && *part != b".");
        if parts.contains(&&b".."[..]) {
            return Err("its path leaves the archive by `..`".to_owned());
        }
        if parts.len() > DEEPEST {
            return Err(format!("it lies in more than {DEEPEST} folders"));
        }
        let name = parts.pop().ok_or("it has no name")?;
        let member = parts.last().and_then(|part| member(part));
        parts.truncate(parts.len() - usize::from(member.is_some()));
        let root = parts.iter().map(|part| OsStr::from_bytes(part)).collect();
        Ok(Self { root, member, name: OsStr::from_bytes(name).to_owned() })
    }
}

/// The number of the member whose folder has this name.
fn member(name: &[u8]) -> Option<usize> {
    let number: usize = std::str::from_utf8(name).ok()?.parse().ok()?;
    let is_its_name = member_dir(Path::new(""), number).as_os_str().as_bytes() == name;
    (is_its_name && number < MOST_MEMBERS).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_the_session_or_to_a_member() {
        for (path, root, member, name) in [
            ("control", "", None, "control"),
            ("./control", "", None, "control"),
            ("s/control", "s", None, "control"),
            ("home/me/s//1-2.rec", "home/me/s", None, "1-2.rec"),
            ("job/0003/1-2.rec", "job", Some(3), "1-2.rec"),
            ("0000/control", "", Some(0), "control"),
            ("9999/control", "9999", None, "control"),
            ("+003/control", "+003", None, "control"),
        ] {
            let place = Place { root: root.into(), member, name: name.into() };
            assert_eq!(Place::of(path.as_bytes()), Ok(place), "{path}");
        }
    }

    #[test]
    fn a_path_that_leaves_the_folder_is_refused() {
        for path in ["/etc/control", "../control", "s/../../control", "", "s\0/control", "./"] {
            assert!(Place::of(path.as_bytes()).is_err(), "{path}");
        }
        assert!(Place::of("a/".repeat(40).as_bytes()).is_err());
    }
}
