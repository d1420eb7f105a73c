//! Comma-separated values as RFC 4180 has them: a header line, CRLF line ends, quotes around fields that need them.
//!
//! Null is the empty field; the empty string is `""`. Text is foreign, and CSV is looked at in terminals and spreadsheets: what
//! is not printable is escaped (line breaks and tabs stay, in quotes), and before what a spreadsheet would take for a formula
//! stands an apostrophe. Numbers are as they are.

use crate::table::{Cell, Column, Sink};
use apex_untrusted::text::{is_formula, printable_but};
use std::io::{self, Write};

/// Writes rows as CSV.
pub struct Csv<W> {
    out: W,
}

impl<W: Write> Csv<W> {
    /// Starts a file with its header line.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(mut out: W, columns: &[Column]) -> io::Result<Self> {
        for (i, column) in columns.iter().enumerate() {
            separator(&mut out, i)?;
            out.write_all(column.name.as_bytes())?;
        }
        out.write_all(b"\r\n")?;
        Ok(Self { out })
    }
}

impl<W: Write> Sink for Csv<W> {
    fn row(&mut self, cells: &[Cell<'_>]) -> io::Result<()> {
        for (i, cell) in cells.iter().enumerate() {
            separator(&mut self.out, i)?;
            match *cell {
                Cell::Null => {}
                Cell::Integer(value) => write!(self.out, "{value}")?,
                Cell::Real(value) => write!(self.out, "{value}")?,
                Cell::Flag(value) => write!(self.out, "{value}")?,
                Cell::Text(value) => text(&mut self.out, value)?,
            }
        }
        self.out.write_all(b"\r\n")
    }

    fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn separator(out: &mut impl Write, index: usize) -> io::Result<()> {
    if index > 0 { out.write_all(b",") } else { Ok(()) }
}

/// Writes a field of text, in quotes where it needs them, with nothing in it that a reader would obey.
///
/// # Errors
/// Those of `out`.
pub fn text(out: &mut impl Write, value: &str) -> io::Result<()> {
    let apostrophe = if is_formula(value) { "'" } else { "" };
    let value = printable_but(value, &['\r', '\n', '\t']);
    let plain = !value.is_empty() && !value.contains(['"', ',', '\r', '\n', '\t']);
    match plain {
        true => write!(out, "{apostrophe}{value}"),
        false => write!(out, "\"{apostrophe}{}\"", value.replace('"', "\"\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Type, column};

    #[test]
    fn quotes_what_needs_quotes_and_tells_null_from_empty() {
        let columns =
            [column("name", Type::Text, ""), column("n", Type::Integer, ""), column("x", Type::Real, "")];
        let mut bytes = Vec::new();
        let mut csv = Csv::new(&mut bytes, &columns).unwrap();
        for (name, n, x) in [
            (Cell::Text("void f<int, 3>(\"q\")"), Cell::Integer(-7), Cell::Real(0.5)),
            (Cell::Text(""), Cell::Null, Cell::Real(1e21)),
            (Cell::Null, Cell::Flag(true), Cell::Text("two\nlines")),
        ] {
            csv.row(&[name, n, x]).unwrap();
        }
        csv.finish().unwrap();
        let expected = "name,n,x\r\n\"void f<int, 3>(\"\"q\"\")\",-7,0.5\r\n\"\",,1000000000000000000000\r\n\
                        ,true,\"two\nlines\"\r\n";
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }

    #[test]
    fn nothing_is_obeyed_and_numbers_stay() {
        for (value, written) in [
            ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
            ("@SUM(1,2)", "\"'@SUM(1,2)\""),
            ("+1+2", "'+1+2"),
            ("-x", "'-x"),
            ("\t=1", "\"'\t=1\""),
            ("\r=1", "\"'\r=1\""),
            ("-1.5e3", "-1.5e3"),
            ("+7", "+7"),
            ("a\x1b[2J\u{9b}b\u{202e}", "a\\x1b[2J\\x9bb\\u{202e}"),
        ] {
            let mut out = Vec::new();
            text(&mut out, value).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), written);
        }
    }
}
