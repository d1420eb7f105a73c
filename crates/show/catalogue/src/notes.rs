//! `notes.json` of a session.
//!
//! Invariants: every text is one line without control characters (remarks may have line breaks) and
//! bounded in length and number; a file that is damaged or that a newer APEX wrote is never
//! overwritten.

use apex_conventions::documents::NOTES;
use apex_untrusted::{Folder, printable, read, shown};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// Bytes of the file, at most.
const MOST_BYTES: u64 = 4 << 20;
/// Letters of a name or of a tag, at most.
const MOST_LETTERS: usize = 80;
/// Letters of a remark, at most.
const MOST_IN_REMARK: usize = 4000;
/// Tags of a session, at most.
const MOST_TAGS: usize = 32;
/// Remarks about a session, at most.
const MOST_REMARKS: usize = 200;

/// The reason why notes cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read or written.
    #[error("cannot use {}: {_1}", shown(_0))]
    File(PathBuf, #[source] io::Error),
    /// The file is damaged, or a newer APEX wrote it.
    #[error("{} {_1}; it is neither used nor changed: move it away to begin anew", shown(_0))]
    Unknown(PathBuf, String),
    /// A text is too long or empty, or there are too many.
    #[error("{0}")]
    Refused(String),
}

/// Notes of people about a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notes {
    /// The session's name, which need not be that of its folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Tags, in order.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Remarks, in the order in which they were made.
    #[serde(default)]
    pub notes: Vec<Note>,
}

/// A remark.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Time at which it was made, nanoseconds since 1970.
    pub at_real_ns: u64,
    /// The remark.
    pub text: String,
}

/// A change of notes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The name to give; an empty one takes the name away.
    pub name: Option<String>,
    /// Tags to add.
    pub tag: Vec<String>,
    /// Tags to take away.
    pub untag: Vec<String>,
    /// A remark to add.
    pub text: Option<String>,
}

/// The file as it is written.
#[derive(Serialize, Deserialize)]
struct File {
    schema: String,
    #[serde(flatten)]
    notes: Notes,
}

impl Notes {
    /// The name of the file in a session's folder.
    pub const FILE: &str = "notes.json";

    /// The notes on a session; none if there is no file.
    ///
    /// # Errors
    /// If the file cannot be read, is damaged, or was written by a newer APEX.
    pub fn read(session: &Path) -> Result<Self, Error> {
        let path = session.join(Self::FILE);
        let bytes = match read::read(&path, MOST_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            read => read.map_err(|error| Error::File(path.clone(), error))?,
        };
        let unknown = |why: String| Error::Unknown(path.clone(), why);
        let damaged = |error| unknown(format!("is damaged ({error})"));
        let file: File = serde_json::from_slice(&bytes).map_err(damaged)?;
        NOTES.check(&file.schema).map_err(|why| unknown(format!("cannot be read: {why}")))?;
        Ok(file.notes.bounded())
    }

    /// Writes the notes into a session's folder; without any, the file is removed.
    ///
    /// # Errors
    /// If that cannot be done. Then the old file is still there.
    pub fn store(&self, folder: &Folder) -> Result<(), Error> {
        let file = |error| Error::File(folder.path().join(Self::FILE), error);
        if *self == Self::default() {
            return match folder.remove(Self::FILE) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                removed => removed.map_err(file),
            };
        }
        let content = File { schema: NOTES.to_string(), notes: self.clone() };
        let mut json = serde_json::to_vec_pretty(&content).map_err(io::Error::from).map_err(file)?;
        json.push(b'\n');
        folder.replace(Self::FILE, 0o600, &json).map_err(file)
    }

    /// Changes the notes.
    ///
    /// # Errors
    /// If a text is empty or too long, or there would be too many. Then nothing is changed.
    pub fn change(&mut self, change: &Change, now_real_ns: u64) -> Result<(), Error> {
        let mut changed = self.clone();
        if let Some(name) = &change.name {
            let name = name.trim();
            changed.name = if name.is_empty() { None } else { Some(line("name", name)?) };
        }
        changed.tags.retain(|tag| !change.untag.contains(tag));
        for tag in &change.tag {
            changed.tags.push(line("tag", tag.trim())?);
        }
        changed.tags.sort();
        changed.tags.dedup();
        if let Some(text) = &change.text {
            changed.notes.push(Note { at_real_ns: now_real_ns, text: remark(text.trim())? });
        }
        if changed.tags.len() > MOST_TAGS {
            return Err(Error::Refused(format!(
                "a session has at most {MOST_TAGS} tags: take one away with --untag"
            )));
        }
        if changed.notes.len() > MOST_REMARKS {
            return Err(Error::Refused(format!("a session has at most {MOST_REMARKS} notes")));
        }
        *self = changed;
        Ok(())
    }

    /// Adds what is said about a part of the session: its tags and remarks, and its name where that
    /// is another one (`base + fused`) and both fit into a name.
    pub fn join(&mut self, part: Self) {
        match (&mut self.name, part.name) {
            (Some(name), Some(other)) if *name != other && !name.split(" + ").any(|known| known == other) => {
                let both = format!("{name} + {other}");
                if both.chars().count() <= MOST_LETTERS {
                    *name = both;
                }
            }
            (Some(_), _) => {}
            (none, name) => *none = name,
        }
        self.tags.extend(part.tags);
        self.tags.sort();
        self.tags.dedup();
        for note in part.notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        self.tags.truncate(MOST_TAGS);
        self.notes.truncate(MOST_REMARKS);
    }

    /// Name and tags on one printable line, `baseline · #h200 #slow`; `None` where there is
    /// neither.
    pub fn headline(&self) -> Option<String> {
        let tags: Vec<String> = self.tags.iter().map(|tag| format!("#{}", printable(tag))).collect();
        let name = self.name.iter().map(|name| printable(name).into_owned());
        let parts: Vec<String> = name.chain((!tags.is_empty()).then(|| tags.join(" "))).collect();
        (!parts.is_empty()).then(|| parts.join(" · "))
    }

    /// The notes without what is beyond the bounds: somebody else may have written the file.
    fn bounded(mut self) -> Self {
        let cut = |text: &mut String, most: usize| *text = text.chars().take(most).collect();
        self.name.iter_mut().chain(&mut self.tags).for_each(|text| cut(text, MOST_LETTERS));
        self.notes.iter_mut().for_each(|note| cut(&mut note.text, MOST_IN_REMARK));
        self.tags.truncate(MOST_TAGS);
        self.notes.truncate(MOST_REMARKS);
        self
    }
}

/// A text of one line.
fn line(what: &str, text: &str) -> Result<String, Error> {
    let refused = |why: &str| Err(Error::Refused(format!("the {what} {why}")));
    match text {
        _ if text.is_empty() => refused("is empty"),
        _ if text.chars().any(char::is_control) => refused("has a line break or another control character"),
        _ if text.chars().count() > MOST_LETTERS => refused(&format!("has more than {MOST_LETTERS} letters")),
        _ => Ok(text.to_owned()),
    }
}

fn remark(text: &str) -> Result<String, Error> {
    let refused = |why: &str| Err(Error::Refused(format!("the note {why}")));
    match text {
        _ if text.is_empty() => refused("is empty"),
        _ if text.chars().any(|letter| letter.is_control() && letter != '\n') => {
            refused("has a control character")
        }
        _ if text.chars().count() > MOST_IN_REMARK => {
            refused(&format!("has more than {MOST_IN_REMARK} letters"))
        }
        _ => Ok(text.to_owned()),
    }
}
