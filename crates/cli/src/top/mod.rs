//! `apex top`: shows running programs live in a terminal, or once as text.

mod document;
mod screen;
mod watch;

use crate::output::{self, Color};
use crate::{session, units};
use anyhow::bail;
use apex_conventions::documents;
use apex_top::{Theme, Top};
use clap::builder::FalseyValueParser;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use watch::{Judgement, Looked, Watcher};

/// Columns of a frame that goes into a pipe or a file.
const WIDTH: usize = 120;
/// Rows of a frame that is printed: all that is worth its place. Blank ones at the end are left
/// out.
const HEIGHT: u16 = 44;

/// Shows running programs live: GPU usage, where the time goes, kernels, advice.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex top                          all sessions that are being recorded, and new ones
  apex top apex-train-20261121-093011
  apex top --last 30s               averages over half a minute
  apex top --once                   one frame as text: works without a terminal
  apex top --json | jq '.sessions[] | {session, launches_per_s}'

Press ? for the keys. `apex top` only reads the sessions: it does not affect the programs. A session that has ended keeps \
its last state. Marks: ᵐ measured, ᶜ computed exactly, ᵖ predicted.")]
pub struct Args {
    /// Session folders [default: all sessions that are being recorded on this machine]
    sessions: Vec<PathBuf>,
    /// Time span to show, up to now
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = units::parse_duration)]
    last: Duration,
    /// Print one frame as text and exit
    #[arg(long, value_parser = FalseyValueParser::new())]
    once: bool,
    #[arg(long, help = format!("Print one snapshot as JSON (schema {}) and exit", documents::TOP), value_parser = FalseyValueParser::new())]
    json: bool,
}

/// Runs `apex top`.
pub fn execute(args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    crate::knowledge::install(&[])?;
    args.sessions.iter().try_for_each(|path| session::must_exist(path))?;
    if args.json {
        let looked = Watcher::new(&args.sessions, args.last, Judgement::Full).look();
        return output::json(documents::TOP, &document::of(args.last, &one_at_least(looked)?));
    }
    if args.once {
        let looked = Watcher::new(&args.sessions, args.last, Judgement::Brief).look();
        return print(one_at_least(looked)?);
    }
    if !io::stdout().is_terminal() {
        bail!("stdout is not a terminal: `apex top --once` prints one frame, `apex top --json` a document");
    }
    let terminal = std::env::var("TERM").unwrap_or_default();
    if terminal.is_empty() || terminal == "dumb" {
        bail!("this terminal cannot move its cursor (TERM={terminal:?}): `apex top --once` prints one frame");
    }
    let watcher = Watcher::new(&args.sessions, args.last, Judgement::Brief);
    screen::run(Top::new(&args.sessions), watcher, Theme { color: color.on_stdout() })
}

/// Refuses looks all of which failed.
fn one_at_least(looked: Vec<Looked>) -> anyhow::Result<Vec<Looked>> {
    if let Some((folder, Err(problem))) = looked.first()
        && looked.iter().all(|(_, look)| look.is_err())
    {
        bail!("{}: {problem}", apex_untrusted::shown(folder));
    }
    Ok(looked)
}

/// Prints a frame for each session.
fn print(looked: Vec<Looked>) -> anyhow::Result<ExitCode> {
    let frames: Vec<String> = if looked.is_empty() {
        vec![frame(&Top::new(&[]))]
    } else {
        let frame_of = |(folder, look): Looked| {
            let mut top = Top::new(&[]);
            top.update(&folder, look);
            frame(&top)
        };
        looked.into_iter().map(frame_of).collect()
    };
    output::page(|out| writeln!(out, "{}", frames.join("\n\n")))
}

/// A frame as text, without the keys, which do nothing there.
fn frame(top: &Top) -> String {
    let width = Some(output::width()).filter(|&width| width != usize::MAX).unwrap_or(WIDTH);
    let area = Rect::new(0, 0, u16::try_from(width).unwrap_or(u16::MAX), HEIGHT);
    let mut buffer = Buffer::empty(area);
    top.render(area, &mut buffer, Theme { color: false });
    let row = |y: u16| (0..area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    let rows: Vec<String> = (0..HEIGHT - 1).map(|y| row(y).trim_end().to_owned()).collect();
    rows.join("\n").trim_end().to_owned()
}
