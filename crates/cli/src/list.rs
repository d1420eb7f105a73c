//! `apex list`: the sessions of a folder, and what each of them says first.

use crate::output::{self, Color};
use crate::text::{Align, Ink, Style, Table, wrap};
use crate::{import, progress, session, units};
use anyhow::Context;
use apex_catalogue::{Entry, State};
use apex_conventions::documents::LIST;
use apex_ordered::Order;
use apex_trace::meta::Exit;
use apex_untrusted::printable;
use apex_view::{Filters, Loaded};
use clap::builder::FalseyValueParser;
use serde::Serialize;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Sessions that are listed at most: the newest.
const MOST: usize = 1000;
/// Bytes of a session whose records are read; a larger one would take seconds.
const MOST_READ: u64 = 1 << 30;
/// Letters of a command in the table.
const COMMAND: usize = 40;

/// Lists the sessions in a folder, the newest first, with what each report says first.
///
/// Packed sessions are listed, too. Sessions of more than 1 GiB are listed without their verdict,
/// and with `--brief` all of them are.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex list                      the sessions in this folder
  apex list runs --tag baseline  those in another folder that have a tag
  apex list --brief              without reading their records
  apex list --json | jq -r '.sessions[] | [.session, .first_finding.rule] | @tsv'")]
pub struct Args {
    /// Folder with sessions [default: this folder]
    folder: Option<PathBuf>,
    /// Only sessions with this tag. May be repeated: then with all of them
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// Do not read the records: without device names and verdicts
    #[arg(long, value_parser = FalseyValueParser::new())]
    brief: bool,
    #[arg(long, help = format!("Print JSON (schema {LIST})"), value_parser = FalseyValueParser::new())]
    json: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(serialize_with = "output::path_in_document")]
    folder: &'a Path,
    sessions: &'a [Entry],
    /// Sessions that are not listed, because there are too many.
    left_out: usize,
}

/// Runs `apex list`.
pub fn execute(args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    crate::knowledge::install(&[])?;
    let folder = args.folder.as_deref().unwrap_or(Path::new("."));
    let found = found(folder).with_context(|| format!("cannot list {}", apex_untrusted::shown(folder)))?;
    let left_out = found.len().saturating_sub(MOST);
    let mut entries: Vec<Entry> = found.iter().take(MOST).filter_map(|path| args.entry(path)).collect();
    entries.order_by_key(|entry| std::cmp::Reverse(entry.started_real_ns));
    if args.json {
        return output::json(LIST, &Document { folder, sessions: &entries, left_out });
    }
    if entries.is_empty() {
        let with = if args.tag.is_empty() { "" } else { " with these tags" };
        let shown = apex_untrusted::shown(folder);
        output::remark(format!("no session{with} in {shown}: `apex run -- COMMAND` records one"));
    }
    if left_out > 0 {
        output::remark(format!("{left_out} older sessions are not listed"));
    }
    let style = Style { color: color.on_stdout() };
    output::page(|out| write(out, &entries, style, output::width()))
}

/// The sessions of a folder and the packed ones, the newest first.
fn found(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = session::sessions_in(folder)?;
    if all.iter().all(|path| path != folder) {
        let files = std::fs::read_dir(folder)?.flatten().map(|entry| entry.path());
        all.extend(files.filter(|path| session::is_packed(path)));
    }
    session::sort_newest_first(&mut all);
    Ok(all.into_iter().map(|path| session::as_typed(&path)).collect())
}

impl Args {
    /// A row of the list, unless its tags are others.
    fn entry(&self, path: &Path) -> Option<Entry> {
        let dir = match import::opened(path) {
            Ok(dir) => dir,
            Err(error) => {
                let unread = Some(output::causes(&error));
                let entry = Entry { unread, ..Entry::brief(path, path) };
                return self.tag.is_empty().then_some(entry);
            }
        };
        let mut entry = Entry::brief(path, &dir);
        if !self.tag.iter().all(|tag| entry.notes.tags.contains(tag)) {
            return None;
        }
        if !self.brief {
            read(&mut entry, &dir);
        }
        import::forget(path);
        Some(entry)
    }
}

/// Adds what the records of a session tell.
fn read(entry: &mut Entry, dir: &Path) {
    if entry.bytes > MOST_READ {
        entry.unread =
            Some(format!("not read, for it has {}: `apex report` reads it", units::bytes(entry.bytes)));
        return;
    }
    let doing = format!("reading {}", printable(&entry.session));
    match progress::show(&doing, |_| Loaded::read(dir, &Filters::default())) {
        Ok(loaded) => entry.read(&loaded),
        Err(error) => entry.unread = Some(error.to_string()),
    }
}

fn write(out: &mut dyn Write, entries: &[Entry], style: Style, width: usize) -> io::Result<()> {
    if entries.is_empty() {
        return Ok(());
    }
    let columns = [
        ("session", Align::Left),
        ("when", Align::Left),
        ("took", Align::Right),
        ("size", Align::Right),
        ("device", Align::OptionalLeft),
        ("command", Align::Flexible),
    ];
    let mut table = Table::new(&columns);
    for entry in entries {
        table.row(cells(entry));
    }
    let mut lines = table.lines(width).into_iter();
    if let Some(heads) = lines.next() {
        writeln!(out, "{}", style.paint(Ink::Dim, heads))?;
    }
    for (line, entry) in lines.zip(entries) {
        writeln!(out, "{}", style.paint(Ink::Bold, line))?;
        for said in sentences(entry) {
            for line in wrap(&said, width.saturating_sub(4).max(20), "  ") {
                writeln!(out, "    {line}")?;
            }
        }
    }
    Ok(())
}

fn cells(entry: &Entry) -> Vec<String> {
    let command = entry.command.as_ref().map_or("?".to_owned(), |words| words.join(" "));
    let took = match (entry.lasted_ns, entry.state) {
        (Some(lasted), _) => units::time(lasted as f64),
        (None, State::Running) => "running".to_owned(),
        (None, _) => "?".to_owned(),
    };
    vec![
        printable(&entry.session).into_owned(),
        entry.started_real_ns.map_or("?".to_owned(), session::local_minute),
        took,
        units::bytes(entry.bytes),
        printable(&entry.devices.join(", ")).into_owned(),
        crate::text::shorten(&printable(&command), COMMAND),
    ]
}

/// What stands below a session: its name and tags, the last remark, the verdict, what is wrong.
fn sentences(entry: &Entry) -> Vec<String> {
    let note = entry.notes.notes.last().map(|note| printable(&note.text).into_owned());
    let named: Vec<String> = entry.notes.headline().into_iter().chain(note).collect();
    let ended = match (entry.exit, entry.state) {
        (Some(Exit::Code(code)), _) if code != 0 => Some(format!("The program exited with status {code}.")),
        (Some(Exit::Signal(signal)), _) => Some(format!("Signal {signal} ended the program.")),
        (None, State::Cut) if entry.is_attached => Some("apex was killed while it watched.".to_owned()),
        (None, State::Cut) => Some("apex was killed before the program ended.".to_owned()),
        _ => None,
    };
    let named = (!named.is_empty()).then(|| named.join(" · "));
    let verdict = entry.verdict.iter().take(1).map(|verdict| printable(verdict).into_owned());
    let remedy = entry
        .first_finding
        .iter()
        .map(|first| printable(&format!("{}: {} → {}.", first.rule, first.title, first.remedy)).into_owned());
    let unread = entry.unread.as_ref().map(|unread| printable(unread).into_owned());
    named.into_iter().chain(ended).chain(verdict).chain(remedy).chain(unread).collect()
}
