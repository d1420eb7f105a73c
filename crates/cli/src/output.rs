//! Destinations of text: pages on stdout, remarks on stderr; width and colours of the terminal.
//!
//! stdout carries only what was asked for; remarks carry the prefix `apex:`, because they stand
//! among the program's own lines. A reader that stops early (`apex report | head`) is no error.

use anyhow::Context;
use apex_conventions::documents::{Document, Envelope};
use apex_untrusted::printable;
use serde::Serialize;
use std::fmt::{self, Display};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

/// The choice of colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Color {
    /// Whether to colour stdout.
    pub fn on_stdout(self) -> bool {
        self.on(io::stdout().is_terminal())
    }

    /// Whether to colour stderr.
    pub fn on_stderr(self) -> bool {
        self.on(io::stderr().is_terminal())
    }

    fn on(self, is_terminal: bool) -> bool {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        match self {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => is_terminal && !unwanted,
        }
    }
}

/// Columns that a page on stdout may fill: the terminal's, else `COLUMNS`. The width of a pipe or a
/// file is [`usize::MAX`], so that searches find everything.
pub fn width() -> usize {
    width_of(libc::STDOUT_FILENO)
}

/// As [`width`], of stderr.
pub fn width_of_stderr() -> usize {
    width_of(libc::STDERR_FILENO)
}

fn width_of(file: libc::c_int) -> usize {
    let from_environment = || std::env::var("COLUMNS").ok()?.parse().ok();
    terminal_width(file).or_else(from_environment).filter(|&columns| columns > 0).unwrap_or(usize::MAX)
}

fn terminal_width(file: libc::c_int) -> Option<usize> {
    // SAFETY: `winsize` is four integers, for which zeros are valid.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: TIOCGWINSZ writes one `winsize` to the pointer, which is one; on another file it
    // fails.
    let known = unsafe { libc::ioctl(file, libc::TIOCGWINSZ, &raw mut size) } == 0;
    (known && size.ws_col > 0).then_some(size.ws_col.into())
}

/// Writes a page to stdout, buffered. A closed pipe ends it quietly.
pub fn page(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<ExitCode> {
    let mut out = BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).with_context(|| format!("cannot write {}", stdout_name()))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// The file that stdout is, as far as the system tells.
pub fn stdout_name() -> String {
    let file = std::fs::read_link("/proc/self/fd/1").ok().filter(|path| path.is_absolute());
    file.map_or_else(|| "stdout".to_owned(), apex_untrusted::shown)
}

/// Writes a remark to stderr, on one line and printable. Errors of stderr are ignored.
pub fn remark(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "apex: {}", printable(&text.to_string()));
}

/// Says why a command failed: in a remark, or in one for each line of [`Lines`].
pub fn failure(error: &anyhow::Error) {
    match error.downcast_ref::<Lines>() {
        Some(Lines(text)) => text.lines().for_each(remark),
        None => remark(causes(error)),
    }
}

/// An error with its causes, each said once: many an error says what its cause says.
pub fn causes(error: &anyhow::Error) -> String {
    let mut causes = error.chain().map(ToString::to_string);
    let first = causes.next().unwrap_or_default();
    causes.fold(first, |text, cause| match text.ends_with(&cause) {
        true => text,
        false => format!("{text}: {cause}"),
    })
}

/// An error that says on several lines what is wrong; nothing foreign in it has line breaks.
#[derive(Debug)]
pub struct Lines(pub String);

impl Display for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Lines {}

/// A path in a document; bytes that are no text are replaced.
pub fn path_in_document<S: serde::Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&path.to_string_lossy())
}

/// Writes a JSON document of this kind to stdout.
pub fn json(document: Document, content: &impl Serialize) -> anyhow::Result<ExitCode> {
    page(|out| {
        apex_export::json::pretty(&mut *out, &Envelope::of(document, content))?;
        writeln!(out)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_said_once() {
        let bare = || anyhow::Error::from(io::Error::other("it is a FIFO"));
        assert_eq!(causes(&bare().context("cannot read m: it is a FIFO")), "cannot read m: it is a FIFO");
        let chained = Err::<(), _>(bare()).context("m").context("cannot use the models").unwrap_err();
        assert_eq!(causes(&chained), "cannot use the models: m: it is a FIFO");
    }
}
