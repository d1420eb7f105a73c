//! Parquet files: one flat schema of optional columns, Snappy pages, row groups of [`GROUP_ROWS`]
//! rows.
//!
//! Rows come one at a time and Parquet wants columns, so a row group is held in memory: at most
//! some tens of megabytes. Text columns repeat a few values (kernel names), which Parquet's
//! dictionary pages store once.

use crate::table::{Cell, Column, Sink, Type};
use ::parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use ::parquet::column::writer::ColumnWriter;
use ::parquet::data_type::ByteArray;
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::types::{Type as Schema, TypePtr};
use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

/// Rows of a row group.
pub const GROUP_ROWS: usize = 256 * 1024;

/// Writes rows as Parquet.
pub struct Parquet<W: Write + Send> {
    /// Taken when the file is finished.
    writer: Option<SerializedFileWriter<W>>,
    columns: Vec<Buffer>,
    rows: usize,
}

/// The cells of one column in the row group that is being gathered.
struct Buffer {
    values: Values,
    /// 1 where there is a value, 0 for null.
    levels: Vec<i16>,
}

enum Values {
    Integer(Vec<i64>),
    Real(Vec<f64>),
    Flag(Vec<bool>),
    Text(Vec<ByteArray>, Interned),
}

/// Strings already seen in this row group: copies of a [`ByteArray`] share its bytes.
type Interned = HashMap<Box<str>, ByteArray>;

impl<W: Write + Send> Parquet<W> {
    /// Starts a file. What each column means goes into the file's key-value metadata under the
    /// column's name.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(out: W, columns: &[Column]) -> io::Result<Self> {
        let meanings = columns
            .iter()
            .map(|c| KeyValue::new(format!("apex.{}", c.name), c.meaning.to_string()))
            .collect();
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(concat!("apex ", env!("CARGO_PKG_VERSION")).to_string())
            .set_key_value_metadata(Some(meanings))
            .build();
        let writer = SerializedFileWriter::new(out, schema(columns).map_err(failure)?, Arc::new(properties));
        let columns = columns.iter().map(|c| Buffer::new(c.kind)).collect();
        Ok(Self { writer: Some(writer.map_err(failure)?), columns, rows: 0 })
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let Some(writer) = self.writer.as_mut().filter(|_| self.rows > 0) else { return Ok(()) };
        let mut group = writer.next_row_group()?;
        for buffer in &mut self.columns {
            let mut column = group
                .next_column()?
                .ok_or_else(|| ParquetError::General("fewer columns than buffers".into()))?;
            buffer.write(column.untyped())?;
            column.close()?;
        }
        group.close()?;
        self.rows = 0;
        Ok(())
    }
}

impl<W: Write + Send> Sink for Parquet<W> {
    fn row(&mut self, cells: &[Cell<'_>]) -> io::Result<()> {
        for (buffer, cell) in self.columns.iter_mut().zip(cells) {
            buffer.push(cell);
        }
        self.rows += 1;
        if self.rows == GROUP_ROWS { self.write_group().map_err(failure) } else { Ok(()) }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.write_group().map_err(failure)?;
        match self.writer.take() {
            Some(writer) => writer.close().map(drop).map_err(failure),
            None => Ok(()),
        }
    }
}

impl Buffer {
    fn new(kind: Type) -> Self {
        let values = match kind {
            Type::Integer => Values::Integer(Vec::new()),
            Type::Real => Values::Real(Vec::new()),
            Type::Flag => Values::Flag(Vec::new()),
            Type::Text => Values::Text(Vec::new(), HashMap::new()),
        };
        Self { values, levels: Vec::new() }
    }

    /// A cell of another type than the column's counts as null: the file stays readable.
    fn push(&mut self, cell: &Cell<'_>) {
        match (&mut self.values, *cell) {
            (Values::Integer(values), Cell::Integer(value)) => values.push(value),
            (Values::Real(values), Cell::Real(value)) => values.push(value),
            (Values::Flag(values), Cell::Flag(value)) => values.push(value),
            (Values::Text(values, seen), Cell::Text(value)) => values.push(intern(seen, value)),
            (_, other) => {
                debug_assert_eq!(other, Cell::Null, "a cell of another type than its column's");
                return self.levels.push(0);
            }
        }
        self.levels.push(1);
    }

    fn write(&mut self, writer: &mut ColumnWriter<'_>) -> Result<(), ParquetError> {
        let levels = Some(self.levels.as_slice());
        match (&mut self.values, writer) {
            (Values::Integer(values), ColumnWriter::Int64ColumnWriter(column)) => {
                column.write_batch(values, levels, None)?;
                values.clear();
            }
            (Values::Real(values), ColumnWriter::DoubleColumnWriter(column)) => {
                column.write_batch(values, levels, None)?;
                values.clear();
            }
            (Values::Flag(values), ColumnWriter::BoolColumnWriter(column)) => {
                column.write_batch(values, levels, None)?;
                values.clear();
            }
            (Values::Text(values, seen), ColumnWriter::ByteArrayColumnWriter(column)) => {
                column.write_batch(values, levels, None)?;
                values.clear();
                seen.clear();
            }
            _ => return Err(ParquetError::General("a column's type differs from its schema".into())),
        }
        self.levels.clear();
        Ok(())
    }
}

fn intern(seen: &mut Interned, value: &str) -> ByteArray {
    if let Some(known) = seen.get(value) {
        return known.clone();
    }
    let bytes = ByteArray::from(value.as_bytes().to_vec());
    seen.insert(value.into(), bytes.clone());
    bytes
}

fn schema(columns: &[Column]) -> Result<TypePtr, ParquetError> {
    let fields = columns.iter().map(|column| {
        let (physical, logical) = match column.kind {
            Type::Integer => (Physical::INT64, None),
            Type::Real => (Physical::DOUBLE, None),
            Type::Flag => (Physical::BOOLEAN, None),
            Type::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let field = Schema::primitive_type_builder(column.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical);
        field.build().map(Arc::new)
    });
    let fields = fields.collect::<Result<_, _>>()?;
    Schema::group_type_builder("apex").with_fields(fields).build().map(Arc::new)
}

/// The writer's errors are its file's, or a mistake in this module.
fn failure(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(io) => *io,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::column;
    use ::parquet::file::reader::{FileReader, SerializedFileReader};
    use ::parquet::record::{Field, RowAccessor};

    #[test]
    fn rows_come_back_over_several_row_groups() {
        let columns = [
            column("n", Type::Integer, "a number"),
            column("name", Type::Text, "a name"),
            column("x", Type::Real, ""),
            column("yes", Type::Flag, ""),
        ];
        let mut bytes = Vec::new();
        let rows = GROUP_ROWS + 1000;
        let mut file = Parquet::new(&mut bytes, &columns).unwrap();
        for i in 0..rows {
            let name = ["first", "", "drei ünf"][i % 3];
            let cells = [
                Cell::Integer(i as i64 - 5),
                Cell::Text(name),
                Cell::Real(i as f64 / 3.0),
                Cell::Flag(i % 2 == 0),
            ];
            file.row(if i % 7 == 0 { &[Cell::Null; 4] } else { &cells }).unwrap();
        }
        file.finish().unwrap();
        drop(file);

        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        assert_eq!(reader.num_row_groups(), 2);
        let mut count = 0;
        for (i, row) in reader.get_row_iter(None).unwrap().enumerate() {
            let row = row.unwrap();
            count += 1;
            if i % 7 == 0 {
                assert!(row.get_column_iter().all(|(_, field)| *field == Field::Null));
                continue;
            }
            assert_eq!(row.get_long(0).unwrap(), i as i64 - 5);
            assert_eq!(row.get_string(1).unwrap(), ["first", "", "drei ünf"][i % 3]);
            assert_eq!(row.get_double(2).unwrap(), i as f64 / 3.0);
            assert_eq!(row.get_bool(3).unwrap(), i % 2 == 0);
        }
        assert_eq!(count, rows);
    }
}
