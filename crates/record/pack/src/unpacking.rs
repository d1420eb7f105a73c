//! Makes the folder of the session that an archive holds.

use crate::place::Place;
use crate::{COLUMNS, Error, columns, compression, holes};
use apex_trace::layout::PROCESS_FILE_EXTENSION;
use apex_trace::{JOINED_FILE, is_joined, is_session, member_dir};
use apex_untrusted::{Folder, printable, shown};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use tar::{Archive, EntryType};

/// Bytes of a process file that is stored column by column, at most: it is decoded in memory.
const MOST_IN_COLUMNS: u64 = 256 << 20;
/// Bytes behind the last file that are read, so that the compression's checksum is checked.
const MOST_BEHIND: u64 = 1 << 20;
/// Bytes that are written at once: a multiple of the size of a page.
const PIECE: usize = 64 << 10;

/// Limits on an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all files together.
    pub bytes: u64,
    /// Entries of the archive, whatever they are.
    pub entries: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 64 << 30, entries: 100_000 }
    }
}

/// Summary of an unpacking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// Files of the session.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files of the archive that are none of a session's, and were left out.
    pub left_out: u64,
}

/// Unpacks an archive into a new folder, whose files it creates. `is_part` knows the names of a
/// session's files. After an error, the folder holds a part of them.
///
/// # Errors
/// If the archive is damaged, refused, beyond the limits, or holds no session; if a file cannot be
/// written.
pub fn unpack(
    archive: &Path,
    folder: &Folder,
    limits: Limits,
    is_part: impl Fn(&OsStr) -> bool,
) -> Result<Unpacked, Error> {
    let (plain, at) = compression::opened(archive).map_err(Error::unreadable(archive))?;
    let folders = BTreeMap::new();
    let done = Unpacked::default();
    let mut unpacking = Unpacking { archive, at, folder, limits, folders, root: None, done };
    let mut tar = Archive::new(plain);
    let entries = tar.entries().map_err(|error| unpacking.damaged(&error))?;
    for (number, entry) in (1..).zip(entries) {
        let entry = entry.map_err(|error| unpacking.damaged(&error))?;
        if number > limits.entries {
            return Err(unpacking.refused(format!("it has more than {} entries", limits.entries)));
        }
        unpacking.entry(entry, &is_part)?;
    }
    // What follows are zeros, and behind them the checksum.
    let rest = io::copy(&mut tar.into_inner().take(MOST_BEHIND), &mut io::sink());
    rest.map_err(|error| unpacking.damaged(&error))?;
    if !is_session(folder.path()) && !is_joined(folder.path()) {
        return Err(Error::NoSession(archive.to_owned()));
    }
    Ok(unpacking.done)
}

struct Unpacking<'a> {
    archive: &'a Path,
    at: Rc<Cell<u64>>,
    folder: &'a Folder,
    limits: Limits,
    /// The folders of members, by their number.
    folders: BTreeMap<usize, Folder>,
    /// The folder in the archive that is the session.
    root: Option<PathBuf>,
    done: Unpacked,
}

impl Unpacking<'_> {
    fn refused(&self, what: String) -> Error {
        Error::Refused { path: self.archive.to_owned(), at: self.at.get(), what }
    }

    /// The archive cannot be read on from here.
    fn damaged(&self, error: &io::Error) -> Error {
        let what = match error.kind() {
            io::ErrorKind::UnexpectedEof => "it is cut off".to_owned(),
            _ => format!("it is damaged ({})", printable(&error.to_string())),
        };
        self.refused(what)
    }

    fn entry(
        &mut self,
        entry: tar::Entry<'_, Box<dyn Read>>,
        is_part: &dyn Fn(&OsStr) -> bool,
    ) -> Result<(), Error> {
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::Directory | EntryType::XGlobalHeader) {
            return Ok(());
        }
        let path = entry.path_bytes().into_owned();
        let of = |what: &str| format!("`{}`: {what}", shown(Path::new(&OsString::from(lossy(&path)))));
        if !matches!(kind, EntryType::Regular | EntryType::Continuous) {
            return Err(self.refused(of("it is a link or a device, which no session has")));
        }
        let place = Place::of(&path).map_err(|why| self.refused(of(&why)))?;
        let target = self.target(&place);
        let tells_joined = place.name == JOINED_FILE && place.member.is_none();
        if !(tells_joined || is_part(&target)) {
            self.done.left_out += 1;
            return Ok(());
        }
        if *self.root.get_or_insert_with(|| place.root.clone()) != place.root {
            return Err(
                self.refused(of("the archive holds several sessions: unpack it with `tar` and name one"))
            );
        }
        let size = entry.size();
        if size > self.limits.bytes.saturating_sub(self.done.bytes) {
            return Err(self.refused(of(&format!("the files exceed {} bytes", self.limits.bytes))));
        }
        let is_in_columns = target != place.name;
        let file = self.create(place.member, &target)?;
        let bytes = match is_in_columns {
            true => self.decoded(entry, file)?,
            false => self.copied(entry, file)?,
        };
        self.done.bytes += bytes;
        self.done.files += 1;
        Ok(())
    }

    /// The name of the file that is written: a process file that is stored in columns has its own.
    fn target(&self, place: &Place) -> OsString {
        let name = Path::new(&place.name);
        match name.extension().is_some_and(|end| end == COLUMNS) {
            true => name.with_extension(PROCESS_FILE_EXTENSION).into(),
            false => place.name.clone(),
        }
    }

    fn create(&mut self, member: Option<usize>, name: &OsStr) -> Result<File, Error> {
        let dir = member.map(|number| member_dir(self.folder.path(), number));
        let folder = match (member, &dir) {
            (Some(number), Some(dir)) => match self.folders.entry(number) {
                Entry::Occupied(made) => made.into_mut(),
                Entry::Vacant(place) => place.insert(Folder::make(dir).map_err(Error::unwritable(dir))?),
            },
            _ => self.folder,
        };
        match folder.create_new(name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(self.refused(format!("`{}` is in it twice", shown(Path::new(name)))))
            }
            made => made.map_err(Error::unwritable(&folder.path().join(name))),
        }
    }

    /// Copies a file; returns its bytes.
    fn copied(&self, mut entry: tar::Entry<'_, Box<dyn Read>>, mut file: File) -> Result<u64, Error> {
        let (mut piece, mut copied) = (vec![0; PIECE], 0);
        loop {
            let length =
                compression::read_up_to(&mut entry, &mut piece).map_err(|error| self.damaged(&error))?;
            holes::append(&mut file, &piece[..length]).map_err(Error::unwritable(self.folder.path()))?;
            copied += length as u64;
            if length < PIECE {
                break;
            }
        }
        if copied != entry.size() {
            return Err(self.damaged(&io::ErrorKind::UnexpectedEof.into()));
        }
        holes::finish(&mut file).map_err(Error::unwritable(self.folder.path()))?;
        Ok(copied)
    }

    /// Decodes a process file; returns its bytes.
    fn decoded(&self, mut entry: tar::Entry<'_, Box<dyn Read>>, mut file: File) -> Result<u64, Error> {
        if entry.size() > MOST_IN_COLUMNS {
            return Err(self.refused(format!("its columns have more than {MOST_IN_COLUMNS} bytes")));
        }
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).map_err(|error| self.damaged(&error))?;
        let decoded = columns::decode(&bytes).map_err(|error| self.damaged(&error))?.to_bytes();
        if decoded.len() as u64 > self.limits.bytes.saturating_sub(self.done.bytes) {
            return Err(self.refused(format!("the files exceed {} bytes", self.limits.bytes)));
        }
        let written = holes::append(&mut file, &decoded).and_then(|()| holes::finish(&mut file));
        written.map_err(Error::unwritable(self.folder.path()))?;
        Ok(decoded.len() as u64)
    }
}

/// The path as text.
fn lossy(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
