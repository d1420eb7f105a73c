//! The source text of places, quoted: what stands at the lines that launch work and at which the
//! host is while a device is idle, and in the functions of the same files, which these lines may
//! have had compiled.
//!
//! The text comes from the program's files, when the session is read. A session from elsewhere may
//! name any path, and files change, so a line is quoted only if the path is absolute and has the
//! extension of a source file, the file is regular, has at most [`MOST_BYTES`], and was last
//! modified before the first process of the session began, and the line exists. Nothing else of a
//! file leaves this module.

use apex_ordered::Gather;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::UNIX_EPOCH;

use apex_trace::Session;
use apex_untrusted::read;

use super::{CallStack, Frame, Profile, Site};
use crate::readings::{self, Reading};
use crate::source_line;

/// Bytes of a file that is read.
const MOST_BYTES: u64 = 4 << 20;
/// Files that are read of one session.
const MOST_FILES: usize = 64;
/// Extensions of source files.
const EXTENSIONS: [&str; 13] =
    ["py", "pyx", "cu", "cuh", "c", "cc", "cpp", "cxx", "h", "hh", "hpp", "rs", "jl"];

/// Statements by file and line, in at most [`source_line::COLUMNS`] characters. No part of what is
/// written.
pub type Quotes = BTreeMap<(String, u32), String>;
/// The innermost loop of Python around a file's line, in its function: its line and its statement.
/// No part of what is written.
pub type Loops = BTreeMap<(String, u32), (u32, String)>;
/// The statements of Python functions, by file and name, with their lines. No part of what is
/// written.
pub type Functions = BTreeMap<(String, String), Vec<(u32, String)>>;

/// What reading the source says of a file's lines. No part of what is written.
pub type Readings = BTreeMap<(String, u32), Vec<Reading>>;

/// What is read of the program's source.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub quotes: Quotes,
    pub loops: Loops,
    pub functions: Functions,
    pub readings: Readings,
}

/// Functions that are followed from a line.
const MOST_CALLED: usize = 64;

impl Profile {
    /// The statements that a statement of this file may have executed: those of the functions whose
    /// names it, or one of these functions, contains, each with its line.
    pub fn statements_called(&self, file: &str, statement: &str) -> Vec<(u32, &str)> {
        let mut names: Vec<&str> = identifiers(statement).collect();
        let (mut known, mut found) = (BTreeSet::new(), Vec::new());
        while let Some(name) = names.pop().filter(|_| known.len() < MOST_CALLED) {
            let Some(body) = self.functions.get(&(file.to_owned(), name.to_owned())) else { continue };
            if known.insert(name) {
                names.extend(body.iter().flat_map(|(_, statement)| identifiers(statement)));
                found.extend(body.iter().map(|(line, statement)| (*line, statement.as_str())));
            }
        }
        found.sort_unstable();
        found
    }

    /// The statements of a file of Python, each with its line.
    pub fn statements_of(&self, file: &str) -> impl Iterator<Item = (u32, &str)> {
        let first = (file.to_owned(), String::new());
        let of_file = self.functions.range(first..).take_while(move |((of, _), _)| of == file);
        of_file.flat_map(|(_, body)| body.iter().map(|(line, statement)| (*line, statement.as_str())))
    }

    /// The statement at the line of a frame; `None` if it is not known.
    pub fn quote(&self, frame: &Frame) -> Option<&str> {
        self.quotes.get(&(frame.file.clone(), frame.line?)).map(String::as_str)
    }

    /// The line and the statement of the innermost loop around the line of a frame, in its function;
    /// `None` if none is known.
    pub fn loop_around(&self, frame: &Frame) -> Option<(u32, &str)> {
        let (line, statement) = self.loops.get(&(frame.file.clone(), frame.line?))?;
        Some((*line, statement))
    }

    /// The statements of the program that call the function in which this line launches, the
    /// innermost first, with their frames.
    pub fn statements_that_call(&self, file: &str, line: u32) -> Vec<(&Frame, &str)> {
        let is_here = |stack: &&CallStack| {
            stack.site().frame().is_some_and(|frame| frame.file == file && frame.line == Some(line))
        };
        let frames = self.call_stacks.iter().filter(is_here).flat_map(CallStack::callers);
        let mut found: Vec<(&Frame, &str)> = Vec::new();
        for (frame, statement) in frames.filter_map(|frame| Some((frame, self.quote(frame)?))) {
            if !found.iter().any(|(known, _)| *known == frame) {
                found.push((frame, statement));
            }
        }
        found
    }

    /// What reading the source says of the line of a frame.
    pub fn readings_of(&self, frame: &Frame) -> &[Reading] {
        let at = frame.line.map(|line| (frame.file.clone(), line));
        at.and_then(|at| self.readings.get(&at)).map_or(&[], Vec::as_slice)
    }

    /// Lines of the program's own code that the profile names.
    fn lines_of_user(&self) -> BTreeSet<(&str, u32)> {
        let launching = self.call_stacks.iter().filter_map(|stack| match stack.site() {
            Site::Line(frame) | Site::Through { python: frame, .. } => Some(frame),
            Site::Autograd | Site::Thread(_) => None,
        });
        let waiting = self.host_stacks.iter().filter_map(|stack| {
            stack.frames.iter().find(|frame| !frame.is_of_library()).map(|frame| &frame.frame)
        });
        let outer = self.call_stacks.iter().flat_map(CallStack::callers);
        let lines = launching.chain(waiting).chain(outer).filter(|frame| !frame.is_of_library());
        lines.filter_map(|frame| Some((frame.file.as_str(), frame.line?))).gathered()
    }
}

/// The names in a statement.
fn identifiers(statement: &str) -> impl Iterator<Item = &str> {
    statement.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| !name.is_empty())
}

/// The statements at the lines that the profile of a session names, the loops around them, and the
/// functions of their files.
pub(super) fn of_session(session: &Session, profile: &Profile) -> Source {
    let began = session.processes.iter().map(|process| process.start_real_ns).min().unwrap_or(0);
    let mut files: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for (file, line) in profile.lines_of_user() {
        files.entry(file).or_default().push(line);
    }
    let mut source = Source::default();
    for (file, lines) in files.into_iter().take(MOST_FILES) {
        let Some(text) = unchanged(Path::new(file), began) else { continue };
        let is_python = file.ends_with(".py") || file.ends_with(".pyx");
        let found = source_line::find(&text, &lines, is_python);
        let at = |line| (file.to_owned(), line);
        source.quotes.extend(found.statements.into_iter().map(|(line, quote)| (at(line), quote)));
        source.loops.extend(found.loops.into_iter().map(|(line, around)| (at(line), around)));
        let read = if is_python { readings::of(&text, &lines) } else { Vec::new() };
        for (line, reading) in read {
            source.readings.entry(at(line)).or_default().push(reading);
        }
        let functions = found.functions.into_iter();
        source.functions.extend(functions.map(|(name, body)| ((file.to_owned(), name), body)));
    }
    source
}

/// The text of a source file that was not modified since; `None` if any condition fails.
fn unchanged(path: &Path, began_ns: u64) -> Option<String> {
    let extension = path.extension()?.to_str()?;
    if !path.is_absolute() || !EXTENSIONS.contains(&extension) {
        return None;
    }
    let modified = std::fs::metadata(path).ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    (modified.as_nanos() <= u128::from(began_ns)).then(|| read::read_to_string(path, MOST_BYTES).ok())?
}

#[cfg(test)]
mod tests {
    use super::unchanged;
    use std::time::{Duration, SystemTime};

    const LATER: u64 = u64::MAX;

    #[test]
    fn only_source_files_that_did_not_change_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("train.py");
        std::fs::write(&file, "x = 1\n").expect("a file");
        assert_eq!(unchanged(&file, LATER).as_deref(), Some("x = 1\n"));
        // Older than the file, by a session that began before.
        let before = SystemTime::now() - Duration::from_secs(3600);
        let before = before.duration_since(std::time::UNIX_EPOCH).expect("a time").as_nanos() as u64;
        assert_eq!(unchanged(&file, before), None);
        let secret = folder.path().join("id_rsa");
        std::fs::write(&secret, "secret\n").expect("a file");
        assert_eq!(unchanged(&secret, LATER), None);
        assert_eq!(unchanged(std::path::Path::new("train.py"), LATER), None);
        assert_eq!(unchanged(folder.path(), LATER), None);
        let large = folder.path().join("large.py");
        std::fs::File::create(&large).expect("a file").set_len(super::MOST_BYTES + 1).expect("a size");
        assert_eq!(unchanged(&large, LATER), None);
    }
}
