//! Comma-separated values: a header line, then a line for each row.
//!
//! Null is the empty field; the empty string is `""`. Text is foreign, and people open CSV in
//! terminals and spreadsheets, so it is written by [`apex_csv::Writer::untrusted`].

use crate::table::{Cell, Column, Sink};
use std::io::{self, Write};

/// Writes rows as CSV.
pub struct Csv<W>(apex_csv::Writer<W>);

impl<W: Write> Csv<W> {
    /// Starts a file with its header line.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(out: W, columns: &[Column]) -> io::Result<Self> {
        let mut csv = apex_csv::Writer::new(out);
        csv.record(columns.iter().map(|column| Some(column.name)))?;
        Ok(Self(csv))
    }
}

impl<W: Write> Sink for Csv<W> {
    fn row(&mut self, cells: &[Cell<'_>]) -> io::Result<()> {
        for cell in cells {
            match *cell {
                Cell::Null => self.0.field(None)?,
                Cell::Integer(value) => self.0.plain(value)?,
                Cell::Real(value) => self.0.plain(value)?,
                Cell::Flag(value) => self.0.plain(value)?,
                Cell::Text(value) => self.0.untrusted(value)?,
            }
        }
        self.0.end_record()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.0.flush()
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
}
