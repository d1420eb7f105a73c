//! Writing: quotes where a reader needs them, and an apostrophe where a spreadsheet would compute.

use apex_untrusted::text::{is_formula, printable_but};
use std::fmt::Display;
use std::io::{self, Write};

/// Writes records, field by field.
pub struct Writer<W> {
    out: W,
    line_end: &'static [u8],
    /// Whether the record has a field already.
    begun: bool,
}

impl<W: Write> Writer<W> {
    /// Writes to `out`. Lines end with `\r\n`, as RFC 4180 has it.
    pub fn new(out: W) -> Self {
        Self { out, line_end: b"\r\n", begun: false }
    }

    /// Writes to `out`. Lines end with `\n`, as files in a repository do.
    pub fn with_newlines(out: W) -> Self {
        Self { line_end: b"\n", ..Self::new(out) }
    }

    /// Writes a field as it is.
    ///
    /// # Errors
    /// Those of the output, as everywhere here.
    pub fn field(&mut self, value: Option<&str>) -> io::Result<()> {
        self.separate()?;
        value.map_or(Ok(()), |text| self.text("", text))
    }

    /// Writes a field that needs no quotes: a number, or a name that the program chose.
    ///
    /// # Errors
    /// Those of the output.
    pub fn plain(&mut self, value: impl Display) -> io::Result<()> {
        self.separate()?;
        write!(self.out, "{value}")
    }

    /// Writes text that somebody else chose, with nothing in it that a terminal or a spreadsheet
    /// would obey. What is not printable is escaped; line ends and tabs stay. An apostrophe
    /// precedes what a spreadsheet would take for a formula; numbers stay as they are.
    ///
    /// # Errors
    /// Those of the output.
    pub fn untrusted(&mut self, text: &str) -> io::Result<()> {
        self.separate()?;
        self.text(if is_formula(text) { "'" } else { "" }, &printable_but(text, &['\r', '\n', '\t']))
    }

    /// Ends the record.
    ///
    /// # Errors
    /// Those of the output.
    pub fn end_record(&mut self) -> io::Result<()> {
        self.begun = false;
        self.out.write_all(self.line_end)
    }

    /// Writes a record, its fields as they are.
    ///
    /// # Errors
    /// Those of the output.
    pub fn record<'a>(&mut self, fields: impl IntoIterator<Item = Option<&'a str>>) -> io::Result<()> {
        fields.into_iter().try_for_each(|field| self.field(field))?;
        self.end_record()
    }

    /// Writes what the output has buffered.
    ///
    /// # Errors
    /// Those of the output.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn separate(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.begun, true) { self.out.write_all(b",") } else { Ok(()) }
    }

    fn text(&mut self, prefix: &str, text: &str) -> io::Result<()> {
        match text.is_empty() || text.contains(['"', ',', '\r', '\n', '\t']) {
            true => write!(self.out, "\"{prefix}{}\"", text.replace('"', "\"\"")),
            false => write!(self.out, "{prefix}{text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Writer<&mut Vec<u8>>) -> io::Result<()>) -> String {
        let mut bytes = Vec::new();
        write(&mut Writer::new(&mut bytes)).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn quotes_stand_where_they_are_needed() {
        let text = written(|csv| {
            csv.record([Some("plain text"), Some("f<1, 2>(\"q\")"), Some("two\nlines"), None, Some("")])?;
            csv.plain(-1.5)?;
            csv.plain(true)?;
            csv.end_record()
        });
        assert_eq!(text, "plain text,\"f<1, 2>(\"\"q\"\")\",\"two\nlines\",,\"\"\r\n-1.5,true\r\n");
    }

    #[test]
    fn nothing_untrusted_is_obeyed_and_numbers_stay() {
        for (value, expected) in [
            ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
            ("@SUM(1,2)", "\"'@SUM(1,2)\""),
            ("+1+2", "'+1+2"),
            ("-x", "'-x"),
            ("\t=1", "\"'\t=1\""),
            ("\r=1", "\"'\r=1\""),
            ("-1.5e3", "-1.5e3"),
            ("+7", "+7"),
            ("", "\"\""),
            ("a\x1b[2J\u{9b}b\u{202e}", "a\\x1b[2J\\x9bb\\u{202e}"),
        ] {
            assert_eq!(written(|csv| csv.untrusted(value)), expected);
        }
    }
}
