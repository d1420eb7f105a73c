//! The checksums of a session's files, which `apex run` writes when the program has ended.
//!
//! Records are written by one store into a mapping, so they carry no checksum: that would lengthen
//! each launch. The files do not change after the program's end, so a list of their names, lengths
//! and sums is made then. A reader learns from it which file is missing, is cut, or has other bytes
//! than those that were recorded. A session without the list is an older one, or one whose
//! `apex run` was killed; it is read unchecked. The control page says whether a list was written,
//! so that one that was removed is missed.
//!
//! The list is text: a line with the format, a line for each file (name, bytes, and the sums of its
//! blocks, in hexadecimal), and a line with the sum of the lines before. A file that a process
//! still writes has `-` for its sums.

use crate::counts::EXTENSION as COUNTS_FILE_EXTENSION;
use crate::error::Problem;
use crate::layout::{FileHeader, PROCESS_FILE_EXTENSION};
use apex_untrusted::{Folder, read};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read};
use std::mem::offset_of;
use std::path::{Path, PathBuf};

/// Its name in a session's folder.
pub const FILE: &str = "checksums";
/// The first line.
const FORMAT: &str = "APEX checksums 1";
/// Bytes that one sum is of; the last block of a file is shorter.
const BLOCK_BYTES: usize = 16 << 10;
/// Most bytes of a list that are read: of files of 600 GiB.
const MOST_READ: u64 = 512 << 20;
/// Text in the place of sums of a file that is still written.
const OPEN: &str = "-";

/// A file of the list.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    name: String,
    bytes: u64,
    /// `None` for a file that was still written.
    sums: Option<Vec<u32>>,
}

/// Writes the list of the files in a session's folder for which `is_part` is true.
///
/// # Errors
/// Those of the system: the session then stays without a list.
pub fn store(folder: &Folder, is_part: impl Fn(&OsStr) -> bool) -> io::Result<()> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder.path())? {
        let entry = entry?;
        if is_part(&entry.file_name()) {
            entries.extend(entry_of(&entry.path())?);
        }
    }
    entries.sort_by(|a: &Entry, b| a.name.cmp(&b.name));
    folder.replace(FILE, 0o600, text_of(&entries).as_bytes())
}

/// The entry of a file; `None` for a name that no file of a session has.
fn entry_of(path: &Path) -> io::Result<Option<Entry>> {
    let name = path.file_name().and_then(OsStr::to_str).filter(|name| is_plain(name));
    let Some(name) = name else { return Ok(None) };
    let mut file = read::open(path, read::PROCESS_FILE)?;
    let of_process = [PROCESS_FILE_EXTENSION, COUNTS_FILE_EXTENSION].iter().any(|end| name.ends_with(end));
    let sums = if of_process && is_written(&file) { None } else { Some(sums_of(&mut file)?) };
    Ok(Some(Entry { name: name.to_owned(), bytes: file.metadata()?.len(), sums }))
}

/// Whether the process of a file still runs, as far as this one can see. Files of records and of
/// counts have its number at the same place.
fn is_written(file: &File) -> bool {
    use std::os::unix::fs::FileExt;
    let mut pid = [0; size_of::<u32>()];
    if file.read_exact_at(&mut pid, offset_of!(FileHeader, pid) as u64).is_err() {
        return false;
    }
    // SAFETY: signal 0 is sent to nobody; the call only tells whether the process exists.
    let found = unsafe { libc::kill(u32::from_le_bytes(pid).cast_signed(), 0) };
    found == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

/// Whether a name is that of a file in the folder itself, and keeps the lines apart.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(|c: char| c == '/' || c.is_control())
}

fn sums_of(file: &mut impl Read) -> io::Result<Vec<u32>> {
    let (mut sums, mut block) = (Vec::new(), Vec::with_capacity(BLOCK_BYTES));
    loop {
        block.clear();
        file.by_ref().take(BLOCK_BYTES as u64).read_to_end(&mut block)?;
        if block.is_empty() {
            return Ok(sums);
        }
        sums.push(sum(&block));
    }
}

/// A sum of 32 bits. Each step is a bijection of the state, so one changed word always changes the
/// state, and two changes cancel out with the probability of chance.
fn sum(bytes: &[u8]) -> u32 {
    let step = |state: u64, word: u64| {
        let mixed = (state ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    };
    let mut words = bytes.chunks_exact(8);
    let mut state = step(0, bytes.len() as u64);
    for word in words.by_ref() {
        state = step(state, word.try_into().map_or(0, u64::from_le_bytes));
    }
    let state = words.remainder().iter().fold(state, |state, &byte| step(state, byte.into()));
    (step(state, 0) >> 32) as u32
}

fn text_of(entries: &[Entry]) -> String {
    let mut text = format!("{FORMAT}\n");
    for Entry { name, bytes, sums } in entries {
        // Writing into a string cannot fail.
        let _ = write!(text, "{name}\t{bytes}\t");
        match sums {
            None => text += OPEN,
            Some(sums) => sums.iter().for_each(|sum| text += &format!("{sum:08x}")),
        }
        text.push('\n');
    }
    let all = sum(text.as_bytes());
    text + &format!("end\t{all:08x}\n")
}

/// The entries of a list, or what is wrong with it.
fn entries_of(text: &str) -> Result<Vec<Entry>, String> {
    let (first, _) = text.split_once('\n').ok_or("it is empty or cut")?;
    if first != FORMAT {
        return Err(format!("its format is {first}, and this APEX reads {FORMAT}"));
    }
    let (lines, end) = text.rsplit_once("end\t").ok_or("it is cut")?;
    if end.trim_end() != format!("{:08x}", sum(lines.as_bytes())) {
        return Err("it is damaged".to_owned());
    }
    lines.lines().skip(1).map(|line| entry_in(line).ok_or_else(|| "it is damaged".to_owned())).collect()
}

fn entry_in(line: &str) -> Option<Entry> {
    let mut parts = line.split('\t');
    let (name, bytes, sums) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
    let eight = |digits: &[u8]| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    let sums = match sums {
        OPEN => None,
        digits => Some(digits.as_bytes().chunks(8).map(eight).collect::<Option<Vec<_>>>()?),
    };
    is_plain(name).then(|| Entry { name: name.to_owned(), bytes, sums })
}

/// Findings of the list about a session's files.
#[derive(Default)]
pub(crate) struct Checked {
    pub problems: Vec<Problem>,
    /// Process files of the list; `None` without a list, or with one that is damaged.
    pub process_files: Option<BTreeSet<PathBuf>>,
}

/// Compares the files of a session with its list. With `is_brief`, only finds those that are
/// missing. `is_expected`: the control page says that there is a list.
pub(crate) fn check(dir: &Path, is_brief: bool, is_expected: bool) -> Checked {
    let path = dir.join(FILE);
    let found = match read::read_to_string(&path, MOST_READ) {
        Ok(text) => entries_of(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !is_expected => return Checked::default(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err("it is missing, although `apex run` wrote it".to_owned())
        }
        Err(error) => Err(format!("it cannot be read: {error}")),
    };
    let of = |entry: &Entry| dir.join(&entry.name);
    match found {
        Ok(entries) => Checked {
            problems: entries.iter().filter_map(|entry| compare(&of(entry), entry, is_brief)).collect(),
            process_files: Some(entries.iter().map(of).filter(|path| is_of_process(path)).collect()),
        },
        Err(what) => {
            let what = format!("the files of this session cannot be checked for damage: {what}");
            Checked { problems: vec![Problem { path, offset: None, what }], process_files: None }
        }
    }
}

impl Checked {
    /// Says of process files that the list does not have that they came later.
    pub fn note_unlisted(&mut self, found: &[PathBuf]) {
        let Some(listed) = &self.process_files else { return };
        let what = format!(
            "not in {FILE}: it came after `apex run` had ended, from a process that the program left behind or \
             from elsewhere. Its calls are in the figures"
        );
        let unlisted = found.iter().filter(|path| !listed.contains(*path)).cloned();
        self.problems.extend(unlisted.map(|path| Problem { path, offset: None, what: what.clone() }));
    }

    /// Process files that had records and are empty now: that they are cut is said already.
    pub fn emptied(&self) -> BTreeSet<PathBuf> {
        let is_empty = |path: &Path| path.metadata().is_ok_and(|found| found.len() == 0);
        let paths = self.problems.iter().map(|problem| &problem.path);
        paths.filter(|path| is_of_process(path) && is_empty(path)).cloned().collect()
    }
}

fn is_of_process(path: &Path) -> bool {
    path.extension().is_some_and(|found| found == PROCESS_FILE_EXTENSION)
}

/// What is wrong with a file of the list. One that cannot be read is told where it is read.
fn compare(path: &Path, entry: &Entry, is_brief: bool) -> Option<Problem> {
    let tell = |offset, what| Some(Problem { path: path.to_owned(), offset, what });
    let mut file = match read::open(path, read::PROCESS_FILE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return tell(None, missing(path)),
        Err(_) => return None,
        Ok(file) => file,
    };
    let sums = entry.sums.as_ref();
    let bytes = file.metadata().ok().filter(|_| !is_brief)?.len();
    // One that is still written may change, but it does not lose its first page.
    if bytes != entry.bytes && (sums.is_some() || bytes == 0) {
        let lost = match is_of_process(path) && bytes < entry.bytes {
            true => "; records that stood in the rest are in no figure",
            false => "",
        };
        let recorded = entry.bytes;
        let what = format!("damaged: it had {recorded} bytes when it was recorded, and has {bytes}{lost}");
        return tell(None, what);
    }
    let (sums, found) = (sums?, sums_of(&mut file).ok()?);
    let mut changed = (0..sums.len()).filter(|&block| found.get(block) != sums.get(block));
    let first = changed.next()?;
    let others = match changed.count() {
        0 => String::new(),
        others => format!(", and so are {others} other blocks"),
    };
    let length = BLOCK_BYTES.min((bytes - (first * BLOCK_BYTES) as u64) as usize);
    let what = format!(
        "the {length} bytes from here on are not those that were recorded{others}; figures \
         that come from them are wrong or missing"
    );
    tell(Some((first * BLOCK_BYTES) as u64), what)
}

fn missing(path: &Path) -> String {
    match is_of_process(path) {
        true => "missing: the CUDA calls of its process are in no figure".to_owned(),
        false => "missing, although it was recorded".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            fs::write(dir.path().join(name), bytes).unwrap();
        }
        store(&Folder::open(dir.path()).unwrap(), |name| name != FILE).unwrap();
        dir
    }

    fn told(dir: &Path) -> Vec<(String, Option<u64>, String)> {
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let problems = check(dir, false, false).problems.into_iter();
        problems.map(|found| (name(&found.path), found.offset, found.what)).collect()
    }

    #[test]
    fn any_changed_bit_is_found_with_its_place() {
        let bytes: Vec<u8> = (0..BLOCK_BYTES * 2 + 13).map(|at| (at % 251) as u8).collect();
        let dir = session(&[("host-stacks.jsonl", &bytes), ("empty", b"")]);
        assert_eq!(told(dir.path()), []);
        for at in [0, 7, 8, BLOCK_BYTES - 1, BLOCK_BYTES, bytes.len() - 1] {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                fs::write(dir.path().join("host-stacks.jsonl"), &changed).unwrap();
                let told = told(dir.path());
                assert_eq!(told[0].1, Some((at / BLOCK_BYTES * BLOCK_BYTES) as u64), "{told:?}");
                assert!(told[0].2.contains("not those that were recorded"), "{told:?}");
            }
        }
        let mut changed = bytes.clone();
        (changed[0], changed[BLOCK_BYTES]) = (9, 9);
        fs::write(dir.path().join("host-stacks.jsonl"), &changed).unwrap();
        assert!(told(dir.path())[0].2.contains("1 other block"));
    }

    #[test]
    fn missing_cut_and_longer_files_are_named() {
        let dir = session(&[("1-2.rec", b""), ("machine.jsonl", b"lines\n"), ("a.ptx", b"code")]);
        fs::remove_file(dir.path().join("1-2.rec")).unwrap();
        fs::write(dir.path().join("machine.jsonl"), "").unwrap();
        fs::write(dir.path().join("a.ptx"), "code and more").unwrap();
        let told = told(dir.path());
        let names: Vec<_> = told.iter().map(|(name, at, _)| (name.as_str(), *at)).collect();
        assert_eq!(names, [("1-2.rec", None), ("a.ptx", None), ("machine.jsonl", None)]);
        assert!(told[0].2.starts_with("missing: the CUDA calls"), "{told:?}");
        assert!(told[2].2.contains("had 6 bytes when it was recorded, and has 0"), "{told:?}");
        assert_eq!(check(dir.path(), true, true).problems.len(), 1, "a brief look finds what is missing");
    }

    #[test]
    fn a_list_that_should_be_there_is_missed() {
        let dir = session(&[("1-2.rec", b"records")]);
        fs::remove_file(dir.path().join(FILE)).unwrap();
        assert!(check(dir.path(), false, false).problems.is_empty(), "an older session has none");
        let [missed] = &check(dir.path(), false, true).problems[..] else { panic!("one problem") };
        assert!(
            missed.to_string().contains("checksums: the files of this session cannot be checked"),
            "{missed}"
        );
        assert!(missed.what.ends_with("it is missing, although `apex run` wrote it"), "{missed}");
    }

    #[test]
    fn process_files_that_are_not_listed_are_named() {
        let dir = session(&[("1-2.rec", b"records"), ("a.ptx", b"code")]);
        let found = ["1-2.rec", "3-4.rec"].map(|name| dir.path().join(name));
        let mut checked = check(dir.path(), false, true);
        checked.note_unlisted(&found);
        let [unlisted] = &checked.problems[..] else { panic!("{:?}", checked.problems) };
        assert_eq!((&unlisted.path, unlisted.offset), (&found[1], None));
        // Without a list nothing is known.
        fs::remove_file(dir.path().join(FILE)).unwrap();
        let mut checked = check(dir.path(), false, false);
        checked.note_unlisted(&found);
        assert!(checked.problems.is_empty());
    }

    #[test]
    fn a_file_that_is_still_written_may_change() {
        let mut header = vec![0; 4096];
        let pid = offset_of!(FileHeader, pid);
        header[pid..pid + 4].copy_from_slice(&std::process::id().to_le_bytes());
        let dir = session(&[("1-2.rec", &header)]);
        header.push(1);
        fs::write(dir.path().join("1-2.rec"), &header).unwrap();
        assert_eq!(told(dir.path()), []);
        fs::remove_file(dir.path().join("1-2.rec")).unwrap();
        assert_eq!(told(dir.path()).len(), 1);
    }

    #[test]
    fn a_damaged_list_accuses_no_file() {
        let dir = session(&[("1-2.rec", b"records"), ("session.json", b"{}")]);
        let whole = fs::read(dir.path().join(FILE)).unwrap();
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 4;
            fs::write(dir.path().join(FILE), &changed).unwrap();
            let told = told(dir.path());
            assert!(told.len() <= 1 && told.iter().all(|(name, ..)| name == FILE), "byte {at}: {told:?}");
            fs::write(dir.path().join(FILE), &whole[..at]).unwrap();
            let found = check(dir.path(), false, false).problems;
            assert!(found.iter().all(|found| found.path.ends_with(FILE)), "{at} bytes");
        }
        let outside = format!("{FORMAT}\n../other\t1\t00000000\n");
        let outside = format!("{outside}end\t{:08x}\n", sum(outside.as_bytes()));
        fs::write(dir.path().join(FILE), outside).unwrap();
        assert!(told(dir.path())[0].2.contains("it is damaged"));
    }
}
