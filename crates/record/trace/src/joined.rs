//! Joined sessions: a folder with sessions that were recorded apart, as one session.
//!
//! The ranks of a job are recorded by one `apex run` each, on several hosts, or in several folders.
//! The folder that joins them has the file [`JOINED_FILE`], and a folder for each *member*, named
//! by its number: `0000`, `0001`, …. Members are whole sessions and stay as they were recorded.
//!
//! Invariants:
//! * A process of a joined session is identified by its member and the identifier that it had on
//!   its host: both are in one number ([`session_pid`]). Linux gives no identifier beyond
//!   [`PID_BITS`] bits, so that no two processes have the same number, and those of the member 0
//!   keep theirs.
//! * Times of members of other hosts are moved so that the hosts' calendar clocks agree. How well
//!   these were set is not known: no order of events across hosts follows from it.

use std::fs;
use std::path::{Path, PathBuf};

/// The file that tells a joined session.
pub const JOINED_FILE: &str = "joined.json";
/// Bits of a process identifier (`PID_MAX_LIMIT` of Linux).
const PID_BITS: u32 = 22;
/// Members of a joined session.
pub const MOST_MEMBERS: usize = 1 << (u32::BITS - PID_BITS);

/// Whether the session in a folder is joined.
pub fn is_joined(dir: &Path) -> bool {
    dir.join(JOINED_FILE).is_file()
}

/// The folder of a member.
pub fn member_dir(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("{number:04}"))
}

/// A process of a member, in the joined session.
pub fn session_pid(number: usize, pid: u32) -> u32 {
    (number as u32) << PID_BITS | own_pid(pid)
}

/// The identifier that a process had on its host.
pub fn own_pid(pid: u32) -> u32 {
    pid & ((1 << PID_BITS) - 1)
}

/// The number of the member that a process belongs to.
pub fn member_of(pid: u32) -> usize {
    (pid >> PID_BITS) as usize
}

/// The folders that hold the files of a session: its members' if it is joined, else its own.
pub fn folders(dir: &Path) -> Vec<PathBuf> {
    match is_joined(dir) {
        true => numbered(dir).into_iter().map(|(_, dir)| dir).collect(),
        false => vec![dir.to_owned()],
    }
}

/// The numbers and folders of the members of a joined session, in order.
pub fn numbered(dir: &Path) -> Vec<(usize, PathBuf)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let number = |name: &str| {
        let is_plain = name.len() == 4 && name.bytes().all(|byte| byte.is_ascii_digit());
        name.parse().ok().filter(|&number: &usize| is_plain && number < MOST_MEMBERS)
    };
    let mut found: Vec<(usize, PathBuf)> =
        entries.filter_map(|entry| Some((number(entry.file_name().to_str()?)?, entry.path()))).collect();
    found.retain(|(_, path)| path.is_dir());
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_its_member_and_its_own_identifier() {
        assert_eq!(session_pid(0, 4_194_303), 4_194_303);
        let pid = session_pid(MOST_MEMBERS - 1, 650);
        assert_eq!((member_of(pid), own_pid(pid)), (1023, 650));
        assert_ne!(session_pid(1, 650), session_pid(2, 650));
    }

    #[test]
    fn members_are_folders_with_four_digits() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["0001", "0000", "12345", "9999", "x001", "+001", "logs"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("0002"), "a file").unwrap();
        let numbers: Vec<usize> = numbered(dir.path()).into_iter().map(|(number, _)| number).collect();
        assert_eq!(numbers, [0, 1]);
        assert_eq!(folders(dir.path()), [dir.path()], "it is not joined");
        fs::write(dir.path().join(JOINED_FILE), "{}").unwrap();
        assert_eq!(folders(dir.path()), [member_dir(dir.path(), 0), member_dir(dir.path(), 1)]);
    }
}
