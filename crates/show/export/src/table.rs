//! Tables on their way to a file: named, typed columns, and rows that are written one at a time.
//!
//! CSV, Parquet and JSON are three [`Sink`]s of the same rows, so that a column is named, typed and
//! explained once. Nothing here holds more than one row (Parquet: one row group): sessions are
//! larger than memory.

use std::io;

/// The type of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// 64-bit signed integers. Signed, so that differences of two columns come out right
    /// everywhere.
    Integer,
    /// 64-bit floating point.
    Real,
    /// UTF-8.
    Text,
    /// Yes or no.
    Flag,
}

/// One column. Every column may hold nulls: "not known" is never written as 0.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Name, with its unit as suffix where it has one.
    pub name: &'static str,
    /// Type of its cells.
    pub kind: Type,
    /// One line: what it holds, and whether that is measured or computed.
    pub meaning: &'static str,
}

/// Shorthand for tables of columns.
pub(crate) const fn column(name: &'static str, kind: Type, meaning: &'static str) -> Column {
    Column { name, kind, meaning }
}

/// One value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// Not known, or does not apply.
    Null,
    /// For [`Type::Integer`].
    Integer(i64),
    /// For [`Type::Real`].
    Real(f64),
    /// For [`Type::Text`].
    Text(&'a str),
    /// For [`Type::Flag`].
    Flag(bool),
}

impl From<u64> for Cell<'_> {
    /// Values beyond `i64::MAX` occur in no valid session; a corrupt one gives null rather than a
    /// negative number.
    fn from(value: u64) -> Self {
        i64::try_from(value).map_or(Cell::Null, Cell::Integer)
    }
}

impl From<u32> for Cell<'_> {
    fn from(value: u32) -> Self {
        Cell::Integer(value.into())
    }
}

impl From<i32> for Cell<'_> {
    fn from(value: i32) -> Self {
        Cell::Integer(value.into())
    }
}

impl From<f64> for Cell<'_> {
    fn from(value: f64) -> Self {
        Cell::Real(value)
    }
}

impl From<bool> for Cell<'_> {
    fn from(value: bool) -> Self {
        Cell::Flag(value)
    }
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(value: &'a str) -> Self {
        Cell::Text(value)
    }
}

impl<'a, T: Into<Cell<'a>>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Cell::Null, Into::into)
    }
}

/// Where rows go. Each row has one cell for each column that the sink was made with, of that
/// column's type or null.
pub trait Sink {
    /// Writes one row.
    ///
    /// # Errors
    /// The error of writing to the file.
    fn row(&mut self, cells: &[Cell<'_>]) -> io::Result<()>;

    /// Writes what must come last.
    ///
    /// # Errors
    /// The error of writing to the file.
    fn finish(&mut self) -> io::Result<()>;
}
