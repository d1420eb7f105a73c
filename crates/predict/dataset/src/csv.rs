//! Tables of records as CSV (RFC 4180): a header that names the columns, then a line for each
//! record.
//!
//! Reading is strict: unexpected columns, a field that is not a number, and a line that is too
//! short or too long are errors that name file, line and column. Only a table that [`Appender`]
//! wrote may end in the middle of a line: its writer was killed, and [`Appender::open`] drops the
//! torn line.

use cuda_launch::Dim3;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::Error;
use apex_untrusted::read::TABLE;

/// A field or a record, which is one or several columns of a table.
pub trait Columns: Sized {
    /// Adds the names of its columns; `name` is that of the field.
    fn names(name: &str, into: &mut Vec<String>);
    /// Adds its fields.
    fn write(&self, into: &mut Vec<String>);
    /// Takes its fields.
    ///
    /// # Errors
    /// A sentence about the fault in one of them.
    fn read(from: &mut Fields<'_>) -> Result<Self, String>;
}

/// The fields of a line that are still to be read.
#[derive(Debug)]
pub struct Fields<'a> {
    names: &'a [String],
    values: std::slice::Iter<'a, String>,
}

impl Fields<'_> {
    /// The next field's text, turned into something.
    ///
    /// # Errors
    /// `expected` and what stands there instead, with the column's name.
    pub fn parse<T>(&mut self, expected: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, String> {
        let at = self.names.len().saturating_sub(self.values.len());
        let (Some(column), Some(value)) = (self.names.get(at), self.values.next()) else {
            return Err("the line is too short".to_owned());
        };
        parse(value).ok_or_else(|| format!("column {column}: `{value}` is not {expected}"))
    }
}

/// Significant digits of a written fraction: more than any measurement here has, and fewer than
/// binary rounding shows.
const DIGITS: i32 = 6;

/// Shortest text of a number whose fraction is rounded to [`DIGITS`] significant digits. The
/// integer part is never rounded.
fn shortest(value: f64) -> String {
    let before_point = if value == 0.0 { 1 } else { value.abs().log10().floor() as i32 + 1 };
    let text = format!("{value:.*}", (DIGITS - before_point).clamp(0, 300) as usize);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

macro_rules! numbers {
    ($($type:ty, $expected:literal, $text:expr;)*) => { $(
        impl Columns for $type {
            fn names(name: &str, into: &mut Vec<String>) {
                into.push(name.to_owned());
            }
            fn write(&self, into: &mut Vec<String>) {
                into.push($text(*self));
            }
            fn read(from: &mut Fields<'_>) -> Result<Self, String> {
                from.parse($expected, |text| text.parse().ok().filter(|value: &$type| (*value as f64).is_finite()))
            }
        }

        /// Empty where it is not known.
        impl Columns for Option<$type> {
            fn names(name: &str, into: &mut Vec<String>) {
                into.push(name.to_owned());
            }
            fn write(&self, into: &mut Vec<String>) {
                into.push(self.map_or_else(String::new, $text));
            }
            fn read(from: &mut Fields<'_>) -> Result<Self, String> {
                from.parse(concat!("empty or ", $expected), |text| match text {
                    "" => Some(None),
                    text => text.parse().ok().filter(|value: &$type| (*value as f64).is_finite()).map(Some),
                })
            }
        }
    )* };
}

numbers! {
    u32, "a whole number in range", |value: u32| value.to_string();
    u64, "a whole number in range", |value: u64| value.to_string();
    f64, "a finite number", shortest;
}

impl Columns for String {
    fn names(name: &str, into: &mut Vec<String>) {
        into.push(name.to_owned());
    }
    fn write(&self, into: &mut Vec<String>) {
        into.push(self.clone());
    }
    fn read(from: &mut Fields<'_>) -> Result<Self, String> {
        from.parse("text", |text| Some(text.to_owned()))
    }
}

/// Along x, y and z.
impl Columns for Dim3 {
    fn names(name: &str, into: &mut Vec<String>) {
        into.extend(["x", "y", "z"].map(|axis| format!("{name}_{axis}")));
    }
    fn write(&self, into: &mut Vec<String>) {
        into.extend(self.to_array().map(|side| side.to_string()));
    }
    fn read(from: &mut Fields<'_>) -> Result<Self, String> {
        Ok(Dim3 { x: u32::read(from)?, y: u32::read(from)?, z: u32::read(from)? })
    }
}

/// A record: a struct whose fields are columns of the same names.
#[macro_export]
macro_rules! record {
    ($(#[$attribute:meta])* $name:ident { $($(#[$of_field:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name {
            $($(#[$of_field])* pub $field: $type,)*
        }

        impl $crate::Columns for $name {
            fn names(_: &str, into: &mut Vec<String>) {
                $(<$type as $crate::Columns>::names(stringify!($field), into);)*
            }
            fn write(&self, into: &mut Vec<String>) {
                $($crate::Columns::write(&self.$field, into);)*
            }
            fn read(from: &mut $crate::Fields<'_>) -> Result<Self, String> {
                Ok(Self { $($field: $crate::Columns::read(from)?,)* })
            }
        }
    };
}

fn names<T: Columns>() -> Vec<String> {
    let mut names = Vec::new();
    T::names("", &mut names);
    names
}

/// A line of the table. An empty field is null, whatever its column.
fn line(fields: &[String]) -> String {
    let mut line = Vec::new();
    let fields = fields.iter().map(|field| Some(field.as_str()).filter(|text| !text.is_empty()));
    apex_csv::Writer::with_newlines(&mut line).record(fields).expect("memory can be written");
    String::from_utf8(line).expect("text is written")
}

fn line_of(record: &impl Columns) -> String {
    let mut fields = Vec::new();
    record.write(&mut fields);
    line(&fields)
}

/// The whole table as text.
pub fn to_text<T: Columns>(records: &[T]) -> String {
    line(&names::<T>()) + &records.iter().map(line_of).collect::<String>()
}

/// Reads a table: the file, or the file with `.zst` behind its name if there is only that.
///
/// # Errors
/// A file that cannot be read, or is no such table.
pub fn read<T: Columns>(path: &Path) -> Result<Vec<T>, Error> {
    let mut compressed = path.as_os_str().to_owned();
    compressed.push(".zst");
    let compressed = PathBuf::from(compressed);
    let text = if path.exists() || !compressed.exists() {
        apex_untrusted::read::read_to_string(path, TABLE)
    } else {
        decompressed(&compressed)
    };
    let text = text.map_err(|error| Error::io("read", path, error))?;
    if !text.ends_with('\n') {
        let line = text.lines().count() as u64;
        return Err(Error::line(path, line, "the file ends in the middle of this line: it was cut off"));
    }
    parse(&text, path)
}

/// The text of a compressed file: at most [`TABLE`] bytes, so that a small file cannot take all
/// memory.
fn decompressed(path: &Path) -> io::Result<String> {
    let file = apex_untrusted::read::open(path, TABLE)?;
    let decoder = ruzstd::decoding::StreamingDecoder::new(file).map_err(io::Error::other)?;
    let mut text = String::new();
    decoder.take(TABLE + 1).read_to_string(&mut text)?;
    let too_large = || io::Error::new(io::ErrorKind::FileTooLarge, "it holds more than a table may have");
    if text.len() as u64 > TABLE { Err(too_large()) } else { Ok(text) }
}

fn parse<T: Columns>(text: &str, path: &Path) -> Result<Vec<T>, Error> {
    let names = names::<T>();
    let mut records = apex_csv::records(text).map(|(line, record)| {
        let record = record.map_err(|why| Error::line(path, line, why))?;
        Ok((line, record.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>()))
    });
    let (_, header) = records.next().transpose()?.unwrap_or_default();
    if header != names {
        let differs = header.iter().zip(&names).find(|(found, expected)| found != expected);
        let why = match differs {
            Some((found, expected)) => format!("column `{found}` stands where `{expected}` belongs"),
            None => format!("there are {} columns where {} belong", header.len(), names.len()),
        };
        return Err(Error::line(path, 1, why));
    }
    let record = |record: Result<(u64, Vec<String>), Error>| {
        let (line, values) = record?;
        if values.len() != names.len() {
            let why = format!("{} fields stand where {} belong", values.len(), names.len());
            return Err(Error::line(path, line, why));
        }
        let mut fields = Fields { names: &names, values: values.iter() };
        T::read(&mut fields).map_err(|why| Error::line(path, line, why))
    };
    records.map(record).collect()
}

/// A table that grows. The operating system has each record when [`Appender::append`] returns.
#[derive(Debug)]
pub struct Appender {
    file: File,
    path: PathBuf,
}

impl Appender {
    /// Opens or makes the table, and reads what it has. A torn last line is cut off.
    ///
    /// # Errors
    /// A file that cannot be read or written, or is another table.
    pub fn open<T: Columns>(path: &Path) -> Result<(Appender, Vec<T>), Error> {
        let failed = |doing| move |error| Error::io(doing, path, error);
        let mut file = apex_untrusted::replace::open_or_create(path).map_err(failed("open"))?;
        let bytes = apex_untrusted::read::read(path, TABLE).map_err(failed("read"))?;
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).and_then(|()| file.seek(SeekFrom::End(0))).map_err(failed("shorten"))?;
        let mut appender = Appender { file, path: path.to_owned() };
        if whole == 0 {
            appender.write(&line(&names::<T>()))?;
            return Ok((appender, Vec::new()));
        }
        let text = std::str::from_utf8(&bytes[..whole])
            .map_err(|_| Error::line(path, 1, "the file is not text: it belongs to something else"))?;
        Ok((appender, parse(text, path)?))
    }

    /// Adds a record.
    ///
    /// # Errors
    /// A disk that is full, for example.
    pub fn append(&mut self, record: &impl Columns) -> Result<(), Error> {
        self.write(&line_of(record))
    }

    fn write(&mut self, text: &str) -> Result<(), Error> {
        self.file.write_all(text.as_bytes()).map_err(|error| Error::io("write", &self.path, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    record! {
        /// Something of each type.
        Sample { name: String, count: u64, sides: Dim3, measured: Option<f64> }
    }

    fn sample() -> Sample {
        Sample {
            name: "f<int, \"x\">\nend".into(),
            count: u64::MAX,
            sides: Dim3::new(1, 2, 3),
            measured: Some(0.3),
        }
    }

    fn written(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples.csv");
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    #[test]
    fn what_is_written_is_read_again() {
        let records = vec![sample(), Sample { measured: None, ..sample() }, Sample::default()];
        let (_folder, path) = written(&to_text(&records));
        assert_eq!(read::<Sample>(&path).unwrap(), records);
    }

    #[test]
    fn fractions_are_written_with_six_digits_and_whole_numbers_whole() {
        for (value, text) in [
            (1.3636363636363629, "1.36364"),
            (0.1 + 0.2, "0.3"),
            (0.0020533880903490323, "0.00205339"),
            (87.5, "87.5"),
            (-2.0, "-2"),
            (0.0, "0"),
            (9.9999999, "10"),
            (460522.36, "460522"),
            (398195712.0, "398195712"),
            (1.5e-20, "0.000000000000000000015"),
        ] {
            assert_eq!(shortest(value), text);
        }
    }

    proptest! {
        #[test]
        fn what_is_rounded_is_close_and_is_written_the_same_again(value in prop::num::f64::NORMAL) {
            prop_assume!(value.abs() > 1e-290);
            let read: f64 = shortest(value).parse().unwrap();
            prop_assert!((read - value).abs() <= 0.5e-5 * value.abs(), "{value:e} became {read:e}");
            prop_assert_eq!(shortest(read), shortest(value));
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_file_line_and_column() {
        let good = "name,count,sides_x,sides_y,sides_z,measured\n";
        for (text, expected) in [
            ("", "line 1: there are 0 columns where 6 belong"),
            ("name,count\n", "line 1: there are 2 columns where 6 belong"),
            (
                "name,counts,sides_x,sides_y,sides_z,measured\n",
                "line 1: column `counts` stands where `count` belongs",
            ),
            (&format!("{good}a,1,1,1,1,\nb,-1,1,1,1,\n"), "line 3: column count: `-1` is not a whole number"),
            (
                &format!("{good}a,1,1,1,1,NaN\n"),
                "line 2: column measured: `NaN` is not empty or a finite number",
            ),
            (&format!("{good}a,1,1,1\n"), "line 2: 4 fields stand where 6 belong"),
            (
                &format!("{good}a,1,1,1,1,\n\"b,1,1,1,1,\n"),
                "line 3: a quoted field that begins here does not end",
            ),
            (&format!("{good}a,1,1,1,1,\nb,1,1"), "line 3: the file ends in the middle of this line"),
        ] {
            let (_folder, path) = written(text);
            let error = match text {
                "" => parse::<Sample>(text, &path).unwrap_err(),
                text => read::<Sample>(&path).map(|_| text.to_owned()).unwrap_err(),
            };
            let message = error.to_string();
            assert!(message.contains("samples.csv") && message.contains(expected), "{text:?}: {message}");
        }
    }

    #[test]
    fn a_torn_line_is_dropped_wherever_it_was_torn() {
        let text = to_text(&[sample(), Sample::default()]);
        let last = to_text(&[sample()]).len();
        for cut in last..text.len() {
            let (_folder, path) = written(&text[..cut]);
            let (mut appender, found) = Appender::open::<Sample>(&path).unwrap();
            assert_eq!(found, [sample()], "cut at {cut}");
            appender.append(&Sample::default()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn a_foreign_file_is_not_appended_to() {
        let (_folder, path) = written("something else\n");
        assert!(Appender::open::<Sample>(&path).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "something else\n");
    }
}
