//! Comma-separated values (RFC 4180), written and read one record at a time.
//!
//! A field is null or text. Null is the empty field, and the empty string is `""`. This crate
//! exists because the crate `csv` writes and reads both alike.
//!
//! * [`Writer`] quotes the fields that need quotes. [`Writer::untrusted`] writes text that a
//!   terminal or a spreadsheet must not obey.
//! * [`Reader`] reads records from a stream and says on which line each of them begins; a record
//!   that is wrong does not keep it from the next one. [`records`] reads them from text.
//!
//! ```
//! let mut text = Vec::new();
//! let mut csv = apex_csv::Writer::new(&mut text);
//! csv.record([Some("f<1, 2>"), Some(""), None]).unwrap();
//! assert_eq!(text, b"\"f<1, 2>\",\"\",\r\n");
//!
//! let (line, record) = apex_csv::records("\n\"f<1, 2>\",\"\",\n").nth(1).unwrap();
//! assert_eq!((line, record.unwrap()), (2, vec![Some("f<1, 2>".into()), Some("".into()), None]));
//! ```

mod read;
mod write;

pub use read::{Numbered, Reader, Record, records};
pub use write::Writer;
