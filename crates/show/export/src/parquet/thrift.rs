//! A writer of structs in Thrift's compact protocol, as far as Parquet's metadata needs it:
//! integers, bytes, structs, and lists of these.
//!
//! Invariants: fields are written in the order of their numbers, each at most 15 above the previous
//! one, so that a field's number and type share one byte. A nested struct is complete before its
//! parent takes it.

/// A struct being built.
#[derive(Default)]
pub struct Struct {
    bytes: Vec<u8>,
    /// The number of the last field.
    last: u8,
}

/// Types as the protocol numbers them.
#[derive(Clone, Copy)]
enum Kind {
    Int32 = 5,
    Int64 = 6,
    Bytes = 8,
    List = 9,
    Struct = 12,
}

impl Struct {
    /// Adds an integer of 32 bits, or a value of an enumeration.
    pub fn int32(&mut self, field: u8, value: i32) -> &mut Self {
        self.field(field, Kind::Int32);
        integer(&mut self.bytes, value.into());
        self
    }

    /// Adds an integer of 64 bits.
    pub fn int64(&mut self, field: u8, value: i64) -> &mut Self {
        self.field(field, Kind::Int64);
        integer(&mut self.bytes, value);
        self
    }

    /// Adds a number of bytes or rows as an integer of 64 bits.
    pub fn count(&mut self, field: u8, value: u64) -> &mut Self {
        self.int64(field, value.cast_signed())
    }

    /// Adds bytes, or a text.
    pub fn bytes(&mut self, field: u8, value: &[u8]) -> &mut Self {
        self.field(field, Kind::Bytes);
        sized(&mut self.bytes, value);
        self
    }

    /// Adds a struct.
    pub fn nested(&mut self, field: u8, value: &Self) -> &mut Self {
        self.field(field, Kind::Struct);
        self.bytes.extend(value.finished());
        self
    }

    /// Adds a list of values of enumerations.
    pub fn int32s(&mut self, field: u8, values: &[i32]) -> &mut Self {
        self.list(field, Kind::Int32, values.len());
        for value in values {
            integer(&mut self.bytes, (*value).into());
        }
        self
    }

    /// Adds a list of texts.
    pub fn texts(&mut self, field: u8, values: &[&str]) -> &mut Self {
        self.list(field, Kind::Bytes, values.len());
        for value in values {
            sized(&mut self.bytes, value.as_bytes());
        }
        self
    }

    /// Adds a list of structs.
    pub fn structs(&mut self, field: u8, values: &[Self]) -> &mut Self {
        self.list(field, Kind::Struct, values.len());
        for value in values {
            self.bytes.extend(value.finished());
        }
        self
    }

    /// The bytes, with the stop field at the end.
    pub fn finished(&self) -> impl Iterator<Item = u8> {
        self.bytes.iter().copied().chain([0])
    }

    fn field(&mut self, number: u8, kind: Kind) {
        let step = number - self.last;
        debug_assert!((1..=15).contains(&step), "fields come in the order of their numbers");
        self.bytes.push(step << 4 | kind as u8);
        self.last = number;
    }

    fn list(&mut self, field: u8, kind: Kind, length: usize) {
        self.field(field, Kind::List);
        if length < 15 {
            self.bytes.push((length as u8) << 4 | kind as u8);
        } else {
            self.bytes.push(0xf0 | kind as u8);
            varint(&mut self.bytes, length as u64);
        }
    }
}

fn sized(bytes: &mut Vec<u8>, value: &[u8]) {
    varint(bytes, value.len() as u64);
    bytes.extend_from_slice(value);
}

/// Signed, so that small numbers of both signs are short.
fn integer(bytes: &mut Vec<u8>, value: i64) {
    varint(bytes, (value << 1 ^ value >> 63).cast_unsigned());
}

/// Appends a number seven bits at a time, low ones first; the top bit says that more follow.
pub fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}
