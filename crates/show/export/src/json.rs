//! A session as one JSON document, and rows as an array of objects in it.
//!
//! The document is written from front to back, one row at a time, so that a session larger than
//! memory can be exported.

use crate::table::{Cell, Column, Sink};
use apex_conventions::documents::{self, Envelope};
use apex_profile::Profile;
use apex_trace::Session;
use apex_trace::meta::Meta;
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{Formatter, PrettyFormatter};
use std::io::{self, Write};

/// Writes a value as JSON on one line, with everything escaped that is not
/// [printable](apex_untrusted::text::is_printable).
///
/// # Errors
/// Those of the output.
pub fn compact<T: Serialize + ?Sized>(out: impl Write, value: &T) -> io::Result<()> {
    value.serialize(&mut Serializer::with_formatter(out, Compact)).map_err(io::Error::from)
}

/// As [`compact`], for people: indented, on many lines.
///
/// # Errors
/// Those of the output.
pub fn pretty<T: Serialize + ?Sized>(out: impl Write, value: &T) -> io::Result<()> {
    let formatter = Pretty(PrettyFormatter::new());
    value.serialize(&mut Serializer::with_formatter(out, formatter)).map_err(io::Error::from)
}

/// Part of a string. JSON itself escapes quotes, backslashes and C0 only.
fn fragment<W: Write + ?Sized>(out: &mut W, mut text: &str) -> io::Result<()> {
    while let Some((at, c)) = text.char_indices().find(|&(_, c)| !apex_untrusted::text::is_printable(c)) {
        out.write_all(&text.as_bytes()[..at])?;
        for unit in c.encode_utf16(&mut [0; 2]) {
            write!(out, "\\u{unit:04x}")?;
        }
        text = &text[at + c.len_utf8()..];
    }
    out.write_all(text.as_bytes())
}

struct Compact;

impl Formatter for Compact {
    fn write_string_fragment<W: Write + ?Sized>(&mut self, out: &mut W, text: &str) -> io::Result<()> {
        fragment(out, text)
    }
}

/// All but strings as serde_json has it.
struct Pretty(PrettyFormatter<'static>);

impl Formatter for Pretty {
    fn write_string_fragment<W: Write + ?Sized>(&mut self, out: &mut W, text: &str) -> io::Result<()> {
        fragment(out, text)
    }

    fn begin_array<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_array(out)
    }

    fn end_array<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array(out)
    }

    fn begin_array_value<W: Write + ?Sized>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(out, first)
    }

    fn end_array_value<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array_value(out)
    }

    fn begin_object<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object(out)
    }

    fn end_object<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object(out)
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(out, first)
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object_value(out)
    }

    fn end_object_value<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object_value(out)
    }
}

/// The text before the rows.
#[derive(Serialize)]
struct Head<'a> {
    session: String,
    run: Option<&'a Meta>,
    profile: &'a Profile,
}

/// Writes a document without rows: what was run, and its profile.
///
/// # Errors
/// Those of the output.
pub fn summary(session: &Session, profile: &Profile, mut out: impl Write) -> io::Result<()> {
    head(session, profile, &mut out)?;
    out.write_all(b"}\n")?;
    out.flush()
}

/// All but the closing brace.
fn head(session: &Session, profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let head = Head { session: session.dir.display().to_string(), run: session.meta.as_ref(), profile };
    let mut text = Vec::new();
    compact(&mut text, &Envelope::of(documents::EXPORT, head))?;
    text.pop();
    out.write_all(&text)
}

/// Writes rows into a document.
pub struct Json<'a, W> {
    out: W,
    columns: &'a [Column],
    first: bool,
}

impl<'a, W: Write> Json<'a, W> {
    /// Starts a document whose rows will stand in the array `name`.
    ///
    /// # Errors
    /// Those of the output.
    pub fn new(
        mut out: W,
        session: &Session,
        profile: &Profile,
        name: &str,
        columns: &'a [Column],
    ) -> io::Result<Self> {
        head(session, profile, &mut out)?;
        write!(out, ",\"{name}\":[")?;
        Ok(Self { out, columns, first: true })
    }
}

impl<W: Write> Sink for Json<'_, W> {
    fn row(&mut self, cells: &[Cell<'_>]) -> io::Result<()> {
        self.out.write_all(if self.first { b"\n" } else { b",\n" })?;
        self.first = false;
        for (i, (cell, column)) in cells.iter().zip(self.columns).enumerate() {
            write!(self.out, "{}\"{}\":", if i == 0 { "{" } else { "," }, column.name)?;
            match *cell {
                Cell::Null => self.out.write_all(b"null")?,
                Cell::Integer(value) => write!(self.out, "{value}")?,
                Cell::Flag(value) => write!(self.out, "{value}")?,
                // Infinities and NaN become null, as JSON has no word for them.
                Cell::Real(value) => serde_json::to_writer(&mut self.out, &value)?,
                Cell::Text(value) => compact(&mut self.out, value)?,
            }
        }
        self.out.write_all(b"}")
    }

    fn finish(&mut self) -> io::Result<()> {
        self.out.write_all(b"\n]}\n")?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// What is escaped is the same text again when it is read; nothing else differs from what
    /// serde_json writes.
    #[test]
    fn strings_are_escaped_and_come_back() {
        let text = "\"q\" \\ \n\x1b\x7f\u{9b}31m\u{202e}\u{2028}\u{200b}\u{e0041} ä核🙂";
        let value = json!({ "plain": [1, 2.5, null, true, {}, [], "text"], text: { "inner": text } });
        let mut one = Vec::new();
        compact(&mut one, &value).unwrap();
        let mut many = Vec::new();
        pretty(&mut many, &value).unwrap();
        for written in [&one, &many] {
            let written = std::str::from_utf8(written).unwrap();
            assert!(written.chars().all(|c| c == '\n' || apex_untrusted::text::is_printable(c)), "{written}");
            assert!(written.contains("\\u009b31m\\u202e\\u2028\\u200b\\udb40\\udc41"), "{written}");
            assert_eq!(serde_json::from_str::<Value>(written).unwrap(), value);
        }
        let plain = json!({ "a": [1, 2.5, null, true, {}, [], "text \" 核"], "b": {} });
        let mut many = Vec::new();
        pretty(&mut many, &plain).unwrap();
        assert_eq!(String::from_utf8(many).unwrap(), serde_json::to_string_pretty(&plain).unwrap());
    }
}
