//! The footer of a file: the schema, the positions of the pages of each row group, and the meanings
//! of the columns. Numbers of fields and enumerations are those of `parquet.thrift`.

use super::Group;
use super::column::{Chunk, encoding};
use super::thrift::Struct;
use crate::table::{Column, Type};

const OPTIONAL: i32 = 1;
const SNAPPY: i32 = 1;

/// The footer without its length.
pub fn bytes(columns: &[Column], groups: &[Group]) -> Vec<u8> {
    let rows: usize = groups.iter().map(|group| group.rows).sum();
    let mut file = Struct::default();
    file.int32(1, 1);
    file.structs(2, &schema(columns));
    file.count(3, rows as u64);
    file.structs(4, &groups.iter().map(|group| row_group(columns, group)).collect::<Vec<_>>());
    file.structs(5, &columns.iter().map(meaning).collect::<Vec<_>>());
    file.bytes(6, concat!("apex ", env!("CARGO_PKG_VERSION")).as_bytes());
    file.structs(7, &columns.iter().map(|_| union(1)).collect::<Vec<_>>());
    file.finished().collect()
}

/// The root of the schema and its columns.
fn schema(columns: &[Column]) -> Vec<Struct> {
    let mut root = Struct::default();
    root.bytes(4, b"apex").int32(5, columns.len() as i32);
    let mut elements = vec![root];
    elements.extend(columns.iter().map(element));
    elements
}

fn element(column: &Column) -> Struct {
    let mut element = Struct::default();
    element.int32(1, physical(column.kind)).int32(3, OPTIONAL).bytes(4, column.name.as_bytes());
    if column.kind == Type::Text {
        // Older readers know the converted type, newer ones the logical type.
        element.int32(6, 0).nested(10, &union(1));
    }
    element
}

/// A union in which the empty struct of this field is set: the logical type of texts, or the column
/// order that the type defines.
fn union(field: u8) -> Struct {
    let mut union = Struct::default();
    union.nested(field, &Struct::default());
    union
}

const fn physical(kind: Type) -> i32 {
    match kind {
        Type::Flag => 0,
        Type::Integer => 2,
        Type::Real => 5,
        Type::Text => 6,
    }
}

fn row_group(columns: &[Column], group: &Group) -> Struct {
    let sum = |size: fn(&Chunk) -> u64| group.chunks.iter().map(size).sum();
    let place = |(column, chunk)| {
        let mut place = Struct::default();
        place.int64(2, 0).nested(3, &column_chunk(column, chunk, group.rows));
        place
    };
    let mut row_group = Struct::default();
    row_group.structs(1, &columns.iter().zip(&group.chunks).map(place).collect::<Vec<_>>());
    row_group.count(2, sum(|chunk| chunk.unpacked)).count(3, group.rows as u64);
    row_group.count(6, sum(|chunk| chunk.packed));
    row_group
}

fn column_chunk(column: &Column, chunk: &Chunk, rows: usize) -> Struct {
    let values = match chunk.dictionary_at {
        Some(_) => &[encoding::PLAIN, encoding::RUNS, encoding::DICTIONARY][..],
        None => &[encoding::PLAIN, encoding::RUNS],
    };
    let mut meta = Struct::default();
    meta.int32(1, physical(column.kind)).int32s(2, values).texts(3, &[column.name]).int32(4, SNAPPY);
    meta.count(5, rows as u64).count(6, chunk.unpacked).count(7, chunk.packed).count(9, chunk.data_at);
    if let Some(at) = chunk.dictionary_at {
        meta.count(11, at);
    }
    meta.nested(12, &statistics(chunk));
    meta
}

/// Statistics by which a reader can skip a row group.
fn statistics(chunk: &Chunk) -> Struct {
    let mut statistics = Struct::default();
    statistics.count(3, chunk.nulls);
    if let Some((least, largest)) = chunk.range {
        statistics.bytes(5, &largest.to_le_bytes()).bytes(6, &least.to_le_bytes());
    }
    statistics
}

fn meaning(column: &Column) -> Struct {
    let mut entry = Struct::default();
    entry.bytes(1, format!("apex.{}", column.name).as_bytes()).bytes(2, column.meaning.as_bytes());
    entry
}
