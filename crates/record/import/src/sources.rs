//! Recognises traces by their content, and says what other files are.

use crate::bounds::MOST_BYTES;
use crate::nsys;
use apex_ordered::Order;
use apex_untrusted::read;
use flate2::read::MultiGzDecoder;
use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Bytes by which a file's format is told.
const HEAD_BYTES: usize = 64 << 10;
/// Folders inside of one that are looked into, at most that deep.
const MOST_DEPTH: u32 = 8;
/// Files and folders that are looked at, at most.
const MOST_ENTRIES: usize = 20_000;
/// Files that are named with the reason why they are not read, at most.
const MOST_PASSED: usize = 1_000;

/// The format of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Events in Chrome's JSON, as `torch.profiler` and JAX write them, maybe compressed by gzip.
    Json,
    /// Nsight Systems' export to SQLite.
    NsightSqlite,
    /// XLA's planes in protocol buffers, as JAX writes them (`*.xplane.pb`).
    Xplane,
}

impl Format {
    /// The format of a file; `None` if it is none of them, or cannot be read.
    pub fn of(path: &Path) -> Option<Self> {
        told(path, &head_of(path)?).ok()
    }
}

/// What a file is that is no trace which can be imported, and what to do; `None` where it may be
/// one, or where its content says nothing.
pub fn refusal(path: &Path) -> Option<&'static str> {
    told(path, &head_of(path)?).err().filter(|what| !what.is_empty())
}

/// The beginning of a file.
fn head_of(path: &Path) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    let file = read::open(path, MOST_BYTES).ok()?;
    file.take(HEAD_BYTES as u64).read_to_end(&mut head).ok()?;
    Some(head)
}

/// The format that a file's beginning tells, or what it is instead; empty if that is not known.
fn told(path: &Path, head: &[u8]) -> Result<Format, &'static str> {
    if path.extension().is_some_and(|end| end == "nsys-rep" || end == "qdrep") {
        return Err("only Nsight Systems reads its reports: export it with `nsys export --type sqlite`");
    }
    if head.is_empty() {
        return Err("it is empty");
    }
    if head.starts_with(b"SQLite format 3\0") {
        return Ok(Format::NsightSqlite);
    }
    if head.starts_with(b"PK\x03\x04") {
        return Err("it is a zip archive: unpack it, and name the trace in it");
    }
    if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) || head.starts_with(b"\xfd7zXZ\0") {
        return Err("it is compressed by zstd or xz, of which only gzip is read: decompress it first");
    }
    if !head.starts_with(&[0x1f, 0x8b]) {
        return of_plain(path, head);
    }
    let plain = unpacked(head);
    match of_plain(path, &plain) {
        Ok(Format::Json) => Ok(Format::Json),
        _ if plain.starts_with(b"SQLite format 3\0") => {
            Err("it is a compressed database: decompress it first (`gunzip`)")
        }
        // An archive has its own messages.
        _ if plain.get(257..262) == Some(b"ustar") => Err(""),
        _ if plain.is_empty() => Err("it is damaged: nothing of it can be decompressed"),
        _ => Err("it is compressed by gzip, and what is in it is no trace"),
    }
}

/// What a head that gzip compressed begins with. Its end is a cut: what comes before counts.
fn unpacked(head: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let _ = MultiGzDecoder::new(head).take(HEAD_BYTES as u64).read_to_end(&mut plain);
    plain
}

fn of_plain(path: &Path, head: &[u8]) -> Result<Format, &'static str> {
    if head.starts_with(&[0xff, 0xfe]) || head.starts_with(&[0xfe, 0xff]) {
        return Err("it is text in UTF-16: convert it to UTF-8 (`iconv -f UTF-16 -t UTF-8`)");
    }
    let text = head.strip_prefix(crate::json::BOM).unwrap_or(head);
    let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
    if matches!(first, Some(b'{' | b'[')) {
        return Ok(Format::Json);
    }
    if path.to_string_lossy().ends_with(".xplane.pb") {
        return Ok(Format::Xplane);
    }
    match std::str::from_utf8(&text[..text.len().min(512)]) {
        Ok(text) if !text.contains('\0') => Err("it is text, and no trace"),
        _ => Err(""),
    }
}

/// The traces at a path.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The traces, by name.
    pub traces: Vec<PathBuf>,
    /// Files that look like traces and are not read, and why.
    pub passed: Vec<(PathBuf, String)>,
    /// Files that have nothing to do with traces.
    pub others: u64,
}

impl Found {
    /// The trace at a path, or those in a folder and in the folders inside of it.
    pub fn at(path: &Path) -> Self {
        let mut found = Self::default();
        if path.is_dir() {
            found.look_into(path);
        } else if Format::of(path).is_some() {
            found.traces.push(path.to_path_buf());
        }
        found
    }

    fn look_into(&mut self, folder: &Path) {
        let mut folders = vec![(folder.to_path_buf(), 0)];
        let mut entries = 0;
        while let Some((folder, depth)) = folders.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                entries += 1;
                if entries > MOST_ENTRIES {
                    self.pass(path, "the folder has more files than are looked at: name a smaller one");
                    folders.clear();
                    break;
                }
                let name = entry.file_name();
                let is_hidden = name.to_string_lossy().starts_with('.');
                // (Links are not followed: they may lead in circles.)
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() && !is_hidden && !apex_trace::is_session(&path) => {
                        self.enter(&mut folders, path, depth + 1);
                    }
                    Ok(_) if path.is_file() && !is_hidden => self.file(path),
                    _ => {}
                }
            }
        }
        self.traces.order_by(Ord::cmp);
        self.prefer_one_of_a_run();
        self.passed.order_by(Ord::cmp);
    }

    /// Puts a folder on the list of those to look into, unless it is too deep.
    fn enter(&mut self, folders: &mut Vec<(PathBuf, u32)>, folder: PathBuf, depth: u32) {
        if depth <= MOST_DEPTH {
            folders.push((folder, depth));
        } else {
            self.pass(folder, "it is deeper than folders are looked into: name it");
        }
    }

    fn file(&mut self, path: PathBuf) {
        const ENDINGS: [&str; 9] =
            [".json", ".gz", ".tmp", ".sqlite", ".sqlite3", ".db", ".pb", ".nsys-rep", ".qdrep"];
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let words = ["trace", "rank", "worker"];
        if !ENDINGS.iter().any(|end| name.ends_with(end)) && !words.iter().any(|word| name.contains(word)) {
            self.others += 1;
            return;
        }
        let Some(head) = head_of(&path) else { return self.pass(path, "it cannot be read") };
        match told(&path, &head) {
            Ok(Format::Json) if !has_events(&head, &name) => {
                let is_cut = head.len() < HEAD_BYTES && !is_closed(&head);
                self.pass(
                    path,
                    if is_cut {
                        "it is JSON that ends in the middle, before its first event: the program ended while it \
                         wrote the file, or the file was copied in part"
                    } else {
                        "it is JSON, and no trace"
                    },
                );
            }
            Ok(Format::NsightSqlite) if !nsys::is_export(&path) => {
                self.pass(path, "it is a database, and no export of Nsight Systems");
            }
            Ok(_) => self.traces.push(path),
            Err("") => self.others += 1,
            Err(what) => self.pass(path, what),
        }
    }

    fn pass(&mut self, path: PathBuf, why: &str) {
        if self.passed.len() < MOST_PASSED {
            self.passed.push((path, why.to_owned()));
        }
    }

    /// JAX writes up to three files about one run: its planes hold most, and the other two are made
    /// of them, one for Perfetto.
    fn prefer_one_of_a_run(&mut self) {
        let folder_of = |path: &Path| path.parent().map(Path::to_path_buf).unwrap_or_default();
        let mut best: HashMap<PathBuf, u8> = HashMap::new();
        for path in &self.traces {
            let best = best.entry(folder_of(path)).or_default();
            *best = form(path).max(*best);
        }
        let is_best = |path: &PathBuf| best.get(&folder_of(path)) == Some(&form(path));
        let (kept, passed): (Vec<PathBuf>, Vec<PathBuf>) =
            std::mem::take(&mut self.traces).into_iter().partition(is_best);
        self.traces = kept;
        for path in passed {
            self.pass(path, "another file beside it is of the same run of JAX, and holds as much or more");
        }
    }
}

/// Rank of a file of a run of JAX by how much it holds.
fn form(path: &Path) -> u8 {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match () {
        () if name.ends_with(".xplane.pb") => 2,
        () if name.starts_with("perfetto_trace.json") => 0,
        () => 1,
    }
}

/// Whether JSON that is whole in these bytes is closed at its end.
fn is_closed(head: &[u8]) -> bool {
    let plain = if head.starts_with(&[0x1f, 0x8b]) { unpacked(head) } else { head.to_vec() };
    let last = plain.iter().rfind(|byte| !byte.is_ascii_whitespace());
    matches!(last, Some(b'}' | b']'))
}

/// Whether JSON is a trace, as far as its beginning tells. What comes before the events may be
/// longer than that: then the name decides.
fn has_events(head: &[u8], name: &str) -> bool {
    let is_whole = head.len() < HEAD_BYTES;
    let plain = if head.starts_with(&[0x1f, 0x8b]) { unpacked(head) } else { head.to_vec() };
    let has = |word: &[u8]| memchr::memmem::find(&plain, word).is_some();
    let is_list = plain.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    has(b"\"traceEvents\"")
        || is_list && has(b"\"ph\"")
        || has(b"\"nodes\"") && has(b"\"schema\"")
        || !is_whole && name.contains("trace")
}
