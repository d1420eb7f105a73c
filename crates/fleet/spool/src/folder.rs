//! The folder, and its lock.

use crate::entry::{self, Entry, MOST_HEAD, is_key, is_label};
use apex_untrusted::{Folder, read};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Ends the names of entries.
const ENTRY: &str = ".message";
/// Ends the names of entries that are set aside.
const ASIDE: &str = ".damaged";
/// Ends the names of files that are not finished.
const PART: &str = ".part";
const LOCK: &str = "lock";
const COUNTS: &str = "counts";
/// File of the part of [`COUNTS`] that was told.
const TOLD: &str = "told";
/// Most damaged entries that are kept for whoever wants to look at them.
pub const MOST_ASIDE: usize = 16;

/// The most that a spool holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Messages.
    pub entries: usize,
    /// Bytes of all bodies.
    pub bytes: u64,
    /// Bytes of one body. A larger one is refused.
    pub body: u64,
}

impl Default for Limits {
    /// 4096 messages, 64 MiB, 1 MiB each.
    fn default() -> Self {
        Self { entries: 4096, bytes: 64 << 20, body: 1 << 20 }
    }
}

/// Losses since the folder was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that had to make room.
    pub dropped: u64,
    /// Entries whose bytes had changed.
    pub damaged: u64,
    /// Messages that the receiver will never take.
    pub refused: u64,
}

impl Counts {
    /// Difference of these from others.
    fn since(self, other: Self) -> Self {
        Self {
            dropped: self.dropped.saturating_sub(other.dropped),
            damaged: self.damaged.saturating_sub(other.damaged),
            refused: self.refused.saturating_sub(other.refused),
        }
    }
}

/// A message that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its key.
    pub key: String,
    /// Its label; `None` if its file is damaged.
    pub label: Option<String>,
}

/// A folder of messages.
#[derive(Debug)]
pub struct Spool {
    path: PathBuf,
    limits: Limits,
}

/// The folder while this process alone changes it.
struct Locked<'a> {
    folder: Folder,
    spool: &'a Spool,
    _lock: File,
}

/// An entry as the folder lists it.
struct Listed {
    key: String,
    bytes: u64,
    written: SystemTime,
}

impl Spool {
    /// Opens a folder, and makes it where it is missing, for this user alone.
    ///
    /// # Errors
    /// Those of the system. Another error if somebody else could change the folder.
    pub fn open(path: &Path, limits: Limits) -> io::Result<Self> {
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::create_dir_all(parent)?;
        }
        let folder = match Folder::make(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Folder::open(path)?,
            made => made?,
        };
        match folder.refusal()? {
            Some(why) => Err(io::Error::other(why)),
            None => Ok(Self { path: path.to_owned(), limits }),
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn lock(&self) -> io::Result<Locked<'_>> {
        let lock = File::options().create(true).truncate(false).write(true).open(self.path.join(LOCK))?;
        lock.lock()?;
        Ok(Locked { folder: Folder::open(&self.path)?, spool: self, _lock: lock })
    }

    /// Puts a message in, in the place of an earlier one of its key; one that is not earlier stays.
    /// On return it is on the disk.
    ///
    /// # Errors
    /// Those of the system. Another error for a key that is no name of at most 64 letters, digits
    /// and hyphens, for a label that is none, and for a body beyond the limit. The earlier message
    /// then still waits.
    pub fn put(&self, entry: &Entry) -> io::Result<()> {
        let is_possible = is_key(&entry.key) && is_label(&entry.label);
        if !is_possible || entry.body.len() as u64 > self.limits.body {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no such message can be kept"));
        }
        let locked = self.lock()?;
        locked.remove_unfinished()?;
        if locked.read(&entry.key)?.is_some_and(|found| found.sequence >= entry.sequence) {
            return Ok(());
        }
        locked.make_room(&entry.key, entry.body.len() as u64)?;
        locked.folder.replace(entry.key.clone() + ENTRY, 0o600, &entry.to_bytes())
    }

    /// The messages that wait, the one that was written longest ago first.
    ///
    /// # Errors
    /// Those of the system.
    pub fn waiting(&self) -> io::Result<Vec<Waiting>> {
        let most = self.limits.body + MOST_HEAD as u64;
        let label = |key: &str| label(&self.path.join(key.to_owned() + ENTRY), most);
        let of = |entry: Listed| Waiting { label: label(&entry.key), key: entry.key };
        Ok(listed(&self.path)?.into_iter().map(of).collect())
    }

    /// The message of a key; `None` if none waits. A damaged one is set aside and counted.
    ///
    /// # Errors
    /// Those of the system.
    pub fn read(&self, key: &str) -> io::Result<Option<Entry>> {
        if !is_key(key) {
            return Ok(None);
        }
        self.lock()?.read(key)
    }

    /// Removes the message of a key, unless it is later than this sequence.
    ///
    /// # Errors
    /// Those of the system.
    pub fn confirm(&self, key: &str, sequence: u64) -> io::Result<()> {
        self.lock()?.remove_up_to(key, sequence).map(drop)
    }

    /// Removes the message of a key, unless it is later than this sequence, and counts it as
    /// refused.
    ///
    /// # Errors
    /// Those of the system.
    pub fn refuse(&self, key: &str, sequence: u64) -> io::Result<()> {
        let locked = self.lock()?;
        match locked.remove_up_to(key, sequence)? {
            true => locked.count(|counts| counts.refused += 1),
            false => Ok(()),
        }
    }

    /// Returns the losses.
    ///
    /// # Errors
    /// Those of the system.
    pub fn counts(&self) -> io::Result<Counts> {
        self.lock()?.counts(COUNTS)
    }

    /// What was lost since this was asked last, so that each loss is told once.
    ///
    /// # Errors
    /// Those of the system.
    pub fn news(&self) -> io::Result<Counts> {
        let locked = self.lock()?;
        let (all, told) = (locked.counts(COUNTS)?, locked.counts(TOLD)?);
        if all != told {
            locked.keep(TOLD, all)?;
        }
        Ok(all.since(told))
    }
}

impl Locked<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.spool.path.join(name)
    }

    fn read(&self, key: &str) -> io::Result<Option<Entry>> {
        let name = key.to_owned() + ENTRY;
        match read::read(&self.path(&name), self.spool.limits.body + MOST_HEAD as u64) {
            Ok(bytes) => match Entry::parse(key, &bytes) {
                None => self.set_aside(key).map(|()| None),
                entry => Ok(entry),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            // It is no file, or larger than any entry.
            Err(_) if self.path(&name).symlink_metadata().is_ok() => self.set_aside(key).map(|()| None),
            Err(error) => Err(error),
        }
    }

    /// Keeps a damaged entry out of the way, and counts it before it is gone.
    fn set_aside(&self, key: &str) -> io::Result<()> {
        self.count(|counts| counts.damaged += 1)?;
        let kept = names(&self.spool.path)?.into_iter().filter(|name| name.ends_with(ASIDE)).count();
        let name = key.to_owned() + ENTRY;
        match kept < MOST_ASIDE {
            true => fs::rename(self.path(&name), self.path(&(key.to_owned() + ASIDE))),
            false => self.folder.remove(&name),
        }
    }

    /// Removes the entry of a key up to a sequence. Returns whether there was one.
    fn remove_up_to(&self, key: &str, sequence: u64) -> io::Result<bool> {
        let is_key = is_key(key);
        let found = if is_key { self.read(key)? } else { None };
        match found.is_some_and(|found| found.sequence <= sequence) {
            true => self.folder.remove(&(key.to_owned() + ENTRY)).map(|()| true),
            false => Ok(false),
        }
    }

    /// Removes what was written longest ago, until there is room for a message of this key.
    fn make_room(&self, key: &str, bytes: u64) -> io::Result<()> {
        let others: Vec<Listed> =
            listed(&self.spool.path)?.into_iter().filter(|entry| entry.key != key).collect();
        let Limits { entries, bytes: most, .. } = self.spool.limits;
        let (mut count, mut sum) =
            (others.len() + 1, bytes + others.iter().map(|entry| entry.bytes).sum::<u64>());
        for entry in &others {
            if count <= entries && sum <= most {
                break;
            }
            self.count(|counts| counts.dropped += 1)?;
            self.folder.remove(&(entry.key.clone() + ENTRY))?;
            (count, sum) = (count - 1, sum - entry.bytes);
        }
        Ok(())
    }

    /// Removes files that a process left when it ended in the middle of writing.
    fn remove_unfinished(&self) -> io::Result<()> {
        let names = names(&self.spool.path)?;
        names.iter().filter(|name| name.ends_with(PART)).try_for_each(|name| self.folder.remove(name))
    }

    fn counts(&self, name: &str) -> io::Result<Counts> {
        let text = match read::read_to_string(&self.path(name), 1 << 10) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let of = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        Ok(Counts { dropped: of("dropped"), damaged: of("damaged"), refused: of("refused") })
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) -> io::Result<()> {
        let mut counts = self.counts(COUNTS)?;
        change(&mut counts);
        self.keep(COUNTS, counts)
    }

    fn keep(&self, name: &str, counts: Counts) -> io::Result<()> {
        let Counts { dropped, damaged, refused } = counts;
        let text = format!("dropped {dropped}\ndamaged {damaged}\nrefused {refused}\n");
        self.folder.replace(name, 0o600, text.as_bytes())
    }
}

/// The label in an entry's file, which has at most so many bytes.
fn label(path: &Path, most: u64) -> Option<String> {
    let mut head = Vec::new();
    let file = read::open(path, most).ok()?;
    file.take(MOST_HEAD as u64).read_to_end(&mut head).ok()?;
    entry::label(&head).map(str::to_owned)
}

/// Names of files in the folder.
fn names(path: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(path)?;
    entries.filter_map(|entry| entry.map(|entry| entry.file_name().into_string().ok()).transpose()).collect()
}

/// Entries of the folder, the one that was written longest ago first.
fn listed(path: &Path) -> io::Result<Vec<Listed>> {
    let mut entries = Vec::new();
    for name in names(path)? {
        let Some(key) = name.strip_suffix(ENTRY).filter(|key| is_key(key)) else { continue };
        // Another process may have removed it.
        let Ok(found) = path.join(&name).symlink_metadata() else { continue };
        let written = found.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        entries.push(Listed { key: key.to_owned(), bytes: found.len(), written });
    }
    entries.sort_by(|a, b| (a.written, &a.key).cmp(&(b.written, &b.key)));
    Ok(entries)
}
