//! A row of a list of sessions.

use crate::Notes;
use apex_trace::meta::{Exit, Meta};
use apex_trace::{META_FILE, Session, folders};
use apex_untrusted::read;
use apex_view::{Filters, Loaded};
use serde::Serialize;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes of a disk block, as file systems count them.
const BLOCK: u64 = 512;

/// A session in a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Entry {
    /// The path by which commands find it.
    pub session: String,
    /// Whether it is one compressed file.
    pub is_packed: bool,
    /// Notes of people about it.
    #[serde(flatten)]
    pub notes: Notes,
    /// The program and its arguments; `None` where the session does not say.
    pub command: Option<Vec<String>>,
    /// The start, nanoseconds since 1970.
    pub started_real_ns: Option<u64>,
    /// Time from the start to the end of the program; `None` while it runs.
    pub lasted_ns: Option<u64>,
    /// Its state.
    pub state: State,
    /// Whether `apex attach` made it.
    #[serde(skip)]
    pub is_attached: bool,
    /// End of the program.
    pub exit: Option<Exit>,
    /// The devices' names; `gpu` or `cpu` where the records were not read.
    pub devices: Vec<String>,
    /// Space on the disk, bytes.
    pub bytes: u64,
    /// The first sentences of its report; empty where the records were not read.
    pub verdict: Vec<String>,
    /// The first finding.
    pub first_finding: Option<FirstFinding>,
    /// Reason for which it could not be read, or was not.
    pub unread: Option<String>,
}

/// The first finding of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FirstFinding {
    /// The rule.
    pub rule: String,
    /// The fault, in a few words.
    pub title: String,
    /// The change, as a sentence without a full stop.
    pub remedy: String,
}

/// Beginning of 2007, CUDA's first year: nothing was recorded before.
const FIRST_CUDA_NS: u64 = 1_167_609_600_000_000_000;

/// State of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Its program has ended.
    Ended,
    /// It is recorded by a process of this machine.
    Running,
    /// `apex` was killed before the program, or its watching of one, ended.
    Cut,
    /// It does not say.
    #[default]
    Unknown,
}

impl Entry {
    /// What a session's small files tell. `named` is what the user calls it, `dir` the folder that
    /// has it.
    pub fn brief(named: &Path, dir: &Path) -> Self {
        let mut entry = Self {
            session: named.to_string_lossy().into_owned(),
            is_packed: named.is_file(),
            bytes: if named.is_file() { size(named) } else { size_of_folder(dir) },
            ..Self::default()
        };
        match Notes::read(dir) {
            Ok(notes) => entry.notes = notes,
            Err(error) => entry.unread = Some(error.to_string()),
        }
        if let Some(meta) = meta(dir) {
            entry.describe(meta, dir);
        }
        entry
    }

    fn describe(&mut self, meta: Meta, dir: &Path) {
        // A trace may not say when it was made; its times then begin at nothing.
        let is_told = meta.imported.is_empty() || meta.started_real_ns > FIRST_CUDA_NS;
        self.started_real_ns = is_told.then_some(meta.started_real_ns);
        let is_over = meta.is_over();
        self.lasted_ns = meta.ended_real_ns.map(|ended| ended.saturating_sub(meta.started_real_ns));
        self.exit = meta.exit;
        self.is_attached = meta.attached;
        self.devices = vec![meta.device];
        self.command = Some(meta.command);
        self.state = match is_over {
            true => State::Ended,
            false if is_running(dir) => State::Running,
            false => State::Cut,
        };
    }

    /// Adds what the records tell.
    pub fn read(&mut self, loaded: &Loaded) {
        let names: Vec<String> = loaded.profile.devices.iter().map(|device| device.name.clone()).collect();
        if names.iter().any(|name| !name.is_empty()) {
            self.devices = names;
            self.devices.dedup();
        }
        let filters = Filters::default();
        let Ok(shown) = filters.shown(loaded) else { return };
        let advice = shown.advise(&[]);
        self.verdict = apex_view::text::verdict::sentences(&shown.part(), &advice);
        self.first_finding = advice.findings.first().map(|first| FirstFinding {
            rule: first.rule.clone(),
            title: first.title.clone(),
            remedy: first.remedy.clone(),
        });
    }
}

fn meta(dir: &Path) -> Option<Meta> {
    serde_json::from_slice(&read::read(&dir.join(META_FILE), read::SESSION_JSON).ok()?).ok()
}

fn is_running(dir: &Path) -> bool {
    Session::open(dir).is_ok_and(|session| !apex_live::running(&session).is_empty())
}

/// Space that a file takes.
fn size(path: &Path) -> u64 {
    path.metadata().map_or(0, |file| file.blocks().saturating_mul(BLOCK))
}

fn size_of_folder(dir: &Path) -> u64 {
    let members = folders(dir).into_iter().filter(|member| member != dir);
    let all = std::iter::once(dir.to_owned()).chain(members);
    let files = all.flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten().flatten());
    files
        .filter(|file| file.file_type().is_ok_and(|kind| kind.is_file()))
        .map(|file| size(&file.path()))
        .sum()
}
