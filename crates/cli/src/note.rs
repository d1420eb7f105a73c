//! `apex note`: a session's name, tags and remarks.

use crate::output;
use crate::text::{PARAGRAPH, wrap};
use crate::{run, session};
use anyhow::bail;
use apex_catalogue::{Change, Notes};
use apex_conventions::documents::NOTES;
use apex_trace::{is_joined, is_session};
use apex_untrusted::{Folder, printable};
use clap::builder::FalseyValueParser;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Names a session, tags it, and keeps remarks about it; without any of these, shows them.
///
/// They lie in `notes.json` in the session's folder. `apex list` and `apex report` show them,
/// `apex pack` and `apex merge` keep them. `apex run --name … --tag …` gives them from the start.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex note before \"batch 32, four workers\"    adds a remark
  apex note before --name baseline --tag h200 --tag slow
  apex note before --untag slow --name ''       takes a tag and the name away
  apex note before                              shows them
  apex note before --json | jq -r '.tags[]'")]
pub struct Args {
    /// Session folder
    session: PathBuf,
    /// A remark to add
    text: Option<String>,
    /// Name to give the session; an empty one takes its name away
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Tag to add. May be repeated
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// Tag to take away. May be repeated
    #[arg(long, value_name = "TAG")]
    untag: Vec<String>,
    #[arg(long, help = format!("Print JSON (schema {NOTES})"), value_parser = FalseyValueParser::new())]
    json: bool,
}

/// Runs `apex note`.
pub fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    session::must_exist(&args.session)?;
    if !is_session(&args.session) && !is_joined(&args.session) {
        bail!("{} is no session folder", apex_untrusted::shown(&args.session));
    }
    let mut notes = Notes::read(&args.session)?;
    let Args { text, name, tag, untag, .. } = args;
    let change = Change { text: text.clone(), name: name.clone(), tag: tag.clone(), untag: untag.clone() };
    if change != Change::default() {
        notes.change(&change, run::real_ns())?;
        notes.store(&Folder::open(&args.session)?)?;
    }
    if args.json {
        return output::json(NOTES, &notes);
    }
    if change != Change::default() {
        return Ok(ExitCode::SUCCESS);
    }
    if notes == Notes::default() {
        output::remark("no name, tags or notes: `apex note SESSION \"text\"` adds one");
    }
    output::page(|out| write(out, &notes, output::width()))
}

fn write(out: &mut dyn Write, notes: &Notes, width: usize) -> io::Result<()> {
    if let Some(line) = notes.headline() {
        wrap(&line, width, "  ").iter().try_for_each(|line| writeln!(out, "{line}"))?;
    }
    for note in &notes.notes {
        let text = format!("{}  {}", session::local_minute(note.at_real_ns), printable(&note.text));
        wrap(&text, width.min(PARAGRAPH), "  ").iter().try_for_each(|line| writeln!(out, "{line}"))?;
    }
    Ok(())
}
