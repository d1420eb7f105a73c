//! A session as one JSON document, and rows as an array of objects in it.
//!
//! The document is written from front to back, one row at a time, so that a session larger than memory can be exported.

use crate::table::{Cell, Column, Sink};
use advice::Profile;
use serde::Serialize;
use std::io::{self, Write};
use trace::Session;
use trace::meta::Meta;

/// Version of the document.
pub const SCHEMA: &str = "apex.export/1";

/// What stands in front of the rows.
#[derive(Serialize)]
struct Head<'a> {
    schema: &'static str,
    apex_version: &'static str,
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
    let head = Head {
        schema: SCHEMA,
        apex_version: env!("CARGO_PKG_VERSION"),
        session: session.dir.display().to_string(),
        run: session.meta.as_ref(),
        profile,
    };
    let mut text = serde_json::to_vec(&head)?;
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
                Cell::Text(value) => serde_json::to_writer(&mut self.out, value)?,
            }
        }
        self.out.write_all(b"}")
    }

    fn finish(&mut self) -> io::Result<()> {
        self.out.write_all(b"\n]}\n")?;
        self.out.flush()
    }
}
