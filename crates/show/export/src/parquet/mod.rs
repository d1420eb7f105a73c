//! Parquet files: one flat schema of optional columns, Snappy pages, row groups of [`GROUP_ROWS`]
//! rows.
//!
//! Rows come one at a time and Parquet stores columns, so a row group is held in memory: at most
//! some tens of megabytes. A file consists of `PAR1`, the pages of each column of each row group
//! (`column`), a footer with their positions (`footer`), the footer's length, and `PAR1` again. The
//! format is <https://github.com/apache/parquet-format>; the crate `parquet` would add 1.3 MB to
//! the command and 28 s of CPU time to its build.

mod column;
mod footer;
mod runs;
mod thrift;

use crate::table::{Cell, Column, Sink};
use column::{Buffer, Chunk};
use std::io::{self, Write};

/// Number of rows in a row group.
pub const GROUP_ROWS: usize = 256 * 1024;

/// What a file begins and ends with.
const MAGIC: &[u8; 4] = b"PAR1";

/// Writes rows as Parquet.
pub struct Parquet<W: Write> {
    file: File<W>,
    columns: Vec<Column>,
    buffers: Vec<Buffer>,
    /// Number of rows in the row group that is being filled.
    rows: usize,
    groups: Vec<Group>,
    finished: bool,
}

/// A file and the number of bytes written to it.
struct File<W> {
    out: W,
    at: u64,
}

/// A row group that is written.
struct Group {
    rows: usize,
    chunks: Vec<Chunk>,
}

impl<W: Write> File<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.at += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}

impl<W: Write> Parquet<W> {
    /// Starts a file. What each column means goes into the file's key-value metadata under the
    /// column's name.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(out: W, columns: &[Column]) -> io::Result<Self> {
        let mut file = File { out, at: 0 };
        file.write(MAGIC)?;
        let buffers = columns.iter().map(|column| Buffer::new(column.kind)).collect();
        Ok(Self { file, columns: columns.to_vec(), buffers, rows: 0, groups: Vec::new(), finished: false })
    }

    fn write_group(&mut self) -> io::Result<()> {
        let rows = std::mem::take(&mut self.rows);
        if rows > 0 {
            let chunks = self.buffers.iter_mut().map(|buffer| buffer.write(&mut self.file));
            self.groups.push(Group { rows, chunks: chunks.collect::<io::Result<_>>()? });
        }
        Ok(())
    }
}

impl<W: Write> Sink for Parquet<W> {
    fn row(&mut self, cells: &[Cell<'_>]) -> io::Result<()> {
        for (buffer, cell) in self.buffers.iter_mut().zip(cells) {
            buffer.push(cell);
        }
        self.rows += 1;
        if self.rows == GROUP_ROWS { self.write_group() } else { Ok(()) }
    }

    fn finish(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.finished, true) {
            return Ok(());
        }
        self.write_group()?;
        let footer = footer::bytes(&self.columns, &self.groups);
        self.file.write(&footer)?;
        self.file.write(&length(&footer)?.to_le_bytes())?;
        self.file.write(MAGIC)?;
        self.file.out.flush()
    }
}

/// The length of a page or of the footer. The format stores it as an `i32`.
///
/// # Errors
/// If it is 2 GiB or more, as texts in one row group may be.
fn length(bytes: &[u8]) -> io::Result<i32> {
    i32::try_from(bytes.len()).map_err(|_| io::Error::other("a Parquet page must be smaller than 2 GiB"))
}
