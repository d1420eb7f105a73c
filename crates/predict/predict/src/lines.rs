//! Launches as lines of CSV (whose first line names the columns) or JSON Lines, read one at a time.
//!
//! The first character tells which of the two it is: JSON begins with `{`. A line that is wrong is
//! one answer with the reason, and the next line is read all the same. Unknown columns pass
//! through.

use crate::measured::{ABOVE_GPU_TIME_NS, ABOVE_TIME_NS};
use apex_csv::Numbered;
use cuda_launch::{FunctionAttributes, LaunchConfig};
use serde_json::Value;
use std::io::{self, BufRead};

/// The longest line, bytes.
const LONGEST: u64 = 1 << 20;

/// Names and values of a line, in the order of its columns.
pub type Fields = Vec<(String, Value)>;

/// Columns that give a measured time: how many microseconds one of its units is, and by how many
/// nanoseconds the kernel's own duration is longer. The first that is there counts.
const MEASURED: [(&str, f64, f64); 4] = [
    ("measured_us", 1.0, 0.0),
    ("profiled_time_us", 1.0, 0.0),
    ("time_us", 1.0, ABOVE_TIME_NS),
    ("gpu_mean_ns", 1e-3, ABOVE_GPU_TIME_NS),
];

/// Columns that are understood, besides those of measured times.
pub const KNOWN: [&str; 12] = [
    "kernel",
    "grid_x",
    "grid_y",
    "grid_z",
    "block_x",
    "block_y",
    "block_z",
    "dynamic_shared_bytes",
    "registers",
    "static_shared_bytes",
    "local_bytes",
    "max_threads_per_block",
];

/// A question about a launch, from a line or another source.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The kernel's name, for people.
    pub name: Option<String>,
    /// The launch.
    pub launch: LaunchConfig,
    /// The kernel's attributes, if its registers are known.
    pub kernel: Option<FunctionAttributes>,
    /// The kernel's own duration as measured, microseconds.
    pub measured_us: Option<f64>,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its number in the file, from 1; of a record over several lines, that of the first.
    pub number: u64,
    /// The fields of the line; empty if it could not be split.
    pub fields: Fields,
    /// The question, or the error in it.
    pub asked: Result<Question, String>,
}

/// The format of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated values.
    Csv,
    /// JSON Lines.
    Json,
}

impl Question {
    /// As the fields of a line that asks the same, a measured time apart.
    pub fn fields(&self) -> Fields {
        let LaunchConfig { grid, block, dynamic_shared_bytes, .. } = self.launch;
        let number = |value: u32| Some(Value::from(value));
        let of_kernel =
            |value: fn(&FunctionAttributes) -> u32| self.kernel.as_ref().map(value).map(Value::from);
        let values = [
            self.name.clone().map(Value::from),
            number(grid.x),
            number(grid.y),
            number(grid.z),
            number(block.x),
            number(block.y),
            number(block.z),
            number(dynamic_shared_bytes),
            of_kernel(|kernel| kernel.registers),
            of_kernel(|kernel| kernel.static_shared_bytes),
            of_kernel(|kernel| kernel.local_bytes),
            of_kernel(|kernel| kernel.max_threads_per_block),
        ];
        let named = KNOWN.into_iter().map(str::to_owned).zip(values);
        named.map(|(name, value)| (name, value.unwrap_or(Value::Null))).collect()
    }
}

/// Reads lines as they come.
pub struct Lines<R> {
    reader: apex_csv::Reader<R>,
    format: Format,
    /// The columns of CSV.
    columns: Vec<String>,
}

impl<R: BufRead> Lines<R> {
    /// Reads up to the first launch: of CSV the line with the names of the columns.
    ///
    /// # Errors
    /// If `from` cannot be read, or a line of names lacks those that are needed; what is wrong
    /// begins with the line's number.
    pub fn new(mut from: R) -> Result<Self, String> {
        let (first, number) = first_character(&mut from).map_err(|error| error.to_string())?;
        let format = if first == Some(b'{') { Format::Json } else { Format::Csv };
        let reader = apex_csv::Reader::new(from, number, LONGEST);
        let mut lines = Self { reader, format, columns: Vec::new() };
        if format == Format::Csv {
            let named = lines
                .record()
                .map_err(|error| error.to_string())?
                .ok_or_else(|| "1: there is nothing here: the first line names the columns".to_owned())?;
            lines.columns = named.1.map_err(|why| format!("{}: {why}", named.0))?;
            for needed in ["grid_x", "block_x"] {
                if !lines.columns.iter().any(|column| column == needed) {
                    return Err(format!(
                        "{}: there is no column {needed}: the first line names the columns, of which grid_x and block_x are \
                         needed",
                        named.0
                    ));
                }
            }
        }
        Ok(lines)
    }

    /// Returns the format of the lines.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The columns of CSV; of JSON Lines there are none.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The next line that is not blank.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn next_line(&mut self) -> io::Result<Option<Line>> {
        Ok(match self.format {
            Format::Csv => self.record()?.map(|(number, values)| self.csv_line(number, values)),
            Format::Json => self.text()?.map(|(number, text)| json_line(number, text)),
        })
    }

    fn csv_line(&self, number: u64, values: Result<Vec<String>, String>) -> Line {
        let values = match values {
            Ok(values) if values.len() != self.columns.len() => {
                Err(format!("{} fields stand where {} belong", values.len(), self.columns.len()))
            }
            other => other,
        };
        match values {
            Err(why) => Line { number, fields: Fields::new(), asked: Err(why) },
            Ok(values) => {
                let fields: Fields =
                    self.columns.iter().cloned().zip(values.into_iter().map(Value::String)).collect();
                Line { number, asked: asked(&fields), fields }
            }
        }
    }

    /// The next CSV record that is not blank. Nothing here tells an empty field from an empty
    /// string.
    fn record(&mut self) -> io::Result<Option<Numbered<Vec<String>>>> {
        while let Some((number, record)) = self.reader.next_record()? {
            let fields = record
                .map(|record| record.into_iter().map(Option::unwrap_or_default).collect::<Vec<String>>());
            if !fields.as_deref().is_ok_and(|fields| matches!(fields, [only] if only.trim().is_empty())) {
                return Ok(Some((number, fields)));
            }
        }
        Ok(None)
    }

    /// The next line that is not blank.
    fn text(&mut self) -> io::Result<Option<Numbered<String>>> {
        while let Some((number, text)) = self.reader.next_line()? {
            if !text.as_ref().is_ok_and(|text| text.trim().is_empty()) {
                return Ok(Some((number, text)));
            }
        }
        Ok(None)
    }
}

/// The first character that is neither blank nor a byte order mark; it is not taken. And how many
/// lines end before it.
fn first_character(from: &mut impl BufRead) -> io::Result<(Option<u8>, u64)> {
    const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];
    let mut lines = 0;
    loop {
        let first = from.fill_buf()?.first().copied();
        match first {
            Some(byte) if byte.is_ascii_whitespace() || BYTE_ORDER_MARK.contains(&byte) => {
                lines += u64::from(byte == b'\n');
                from.consume(1);
            }
            _ => return Ok((first, lines)),
        }
    }
}

fn json_line(number: u64, text: Result<String, String>) -> Line {
    let object = text.and_then(|text| {
        serde_json::from_str::<serde_json::Map<String, Value>>(&text)
            .map_err(|error| format!("this is no JSON object: {error}"))
    });
    match object {
        Err(why) => Line { number, fields: Fields::new(), asked: Err(why) },
        Ok(object) => {
            let fields: Fields = object.into_iter().collect();
            Line { number, asked: asked(&fields), fields }
        }
    }
}

/// Reads a question from the fields.
fn asked(fields: &Fields) -> Result<Question, String> {
    let or_1 = |name| whole(fields, name).map(|side| side.unwrap_or(1));
    let grid = [needed(fields, "grid_x")?, or_1("grid_y")?, or_1("grid_z")?];
    let block = [needed(fields, "block_x")?, or_1("block_y")?, or_1("block_z")?];
    let shared = whole(fields, "dynamic_shared_bytes")?.unwrap_or(0);
    let launch = LaunchConfig::new(grid, block).with_dynamic_shared_bytes(shared);
    let registers = whole(fields, "registers")?;
    let or_0 = |name| whole(fields, name).map(Option::unwrap_or_default);
    let (static_shared_bytes, local_bytes) = (or_0("static_shared_bytes")?, or_0("local_bytes")?);
    let max_threads_per_block = or_0("max_threads_per_block")?;
    let kernel = registers.map(|registers| FunctionAttributes {
        registers,
        static_shared_bytes,
        local_bytes,
        max_threads_per_block,
        ..FunctionAttributes::default()
    });
    let name = field(fields, "kernel")
        .and_then(|value| value.as_str().map(str::to_owned))
        .filter(|name| !name.is_empty());
    Ok(Question { name, launch, kernel, measured_us: measured(fields)? })
}

fn field<'a>(fields: &'a Fields, name: &str) -> Option<&'a Value> {
    fields.iter().find(|(field, _)| field == name).map(|(_, value)| value)
}

/// A number of a column; `None` where the column or its value is missing.
fn number<T>(
    fields: &Fields,
    name: &str,
    expected: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, String> {
    let text = match field(fields, name) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) if text.trim().is_empty() => return Ok(None),
        Some(Value::String(text)) => text.trim().to_owned(),
        Some(other) => other.to_string(),
    };
    parse(&text).map(Some).ok_or_else(|| format!("column {name}: `{text}` is not {expected}"))
}

fn whole(fields: &Fields, name: &str) -> Result<Option<u32>, String> {
    number(fields, name, "a whole number up to 4294967295", |text| text.parse().ok())
}

fn needed(fields: &Fields, name: &str) -> Result<u32, String> {
    whole(fields, name)?.ok_or_else(|| format!("column {name} is empty or missing, and needed"))
}

/// The kernel's own duration, from whichever column has a time.
fn measured(fields: &Fields) -> Result<Option<f64>, String> {
    for (name, scale, above_ns) in MEASURED {
        let parse = |text: &str| text.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
        if let Some(time) = number(fields, name, "a time", parse)? {
            return Ok(Some(time * scale + above_ns / 1e3));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All lines of a text.
    fn lines(text: impl AsRef<[u8]>) -> Result<Vec<Line>, String> {
        let mut lines = Lines::new(text.as_ref())?;
        let all = std::iter::from_fn(|| lines.next_line().expect("memory can be read"));
        Ok(all.collect())
    }

    /// The number of each line, and what is wrong with it.
    fn verdicts(text: impl AsRef<[u8]>) -> Vec<(u64, String)> {
        let verdict = |line: Line| (line.number, line.asked.err().unwrap_or_else(|| "fine".to_owned()));
        lines(text).unwrap().into_iter().map(verdict).collect()
    }

    #[test]
    fn columns_may_stand_in_any_order_and_be_missing() {
        let found = lines("extra,block_x,grid_x,registers,kernel\r\nx,64,7,32,\"f<1, 2>\"\r\n").unwrap();
        let asked = Question {
            name: Some("f<1, 2>".to_owned()),
            launch: LaunchConfig::new(7, 64),
            kernel: Some(FunctionAttributes { registers: 32, ..FunctionAttributes::default() }),
            measured_us: None,
        };
        assert_eq!(found[0].asked, Ok(asked.clone()));
        assert_eq!(found[0].fields[0], ("extra".to_owned(), "x".into()));
        let json = r#"{"grid_x": 7, "block_x": "64", "registers": 32, "kernel": "f<1, 2>", "grid_y": null}"#;
        assert_eq!(lines(json).unwrap()[0].asked, Ok(asked));
    }

    #[test]
    fn a_line_that_is_wrong_is_named_and_the_next_is_read() {
        let text = "grid_x,block_x,registers\n\n1,32,8\nx,32,8\n1,32\n,32,8\n1,-32,8\n1,32,1e3\n\"1\n,\",32,8\n9,32,\n";
        let whole = "is not a whole number up to 4294967295";
        let expected = [
            (3, "fine".to_owned()),
            (4, format!("column grid_x: `x` {whole}")),
            (5, "2 fields stand where 3 belong".to_owned()),
            (6, "column grid_x is empty or missing, and needed".to_owned()),
            (7, format!("column block_x: `-32` {whole}")),
            (8, format!("column registers: `1e3` {whole}")),
            (9, format!("column grid_x: `1\n,` {whole}")),
            (11, "fine".to_owned()),
        ];
        assert_eq!(verdicts(text), expected);
        let json =
            verdicts("\n{\"grid_x\":1,\"block_x\":2}\n[1]\n{\"grid_x\":1.5,\"block_x\":2}\n{\"grid_x\":1}\n");
        assert_eq!((json[0].0, json[0].1.as_str()), (2, "fine"));
        assert!(json[1].1.starts_with("this is no JSON object"), "{json:?}");
        assert_eq!(json[2], (4, format!("column grid_x: `1.5` {whole}")));
        assert_eq!(json[3], (5, "column block_x is empty or missing, and needed".to_owned()));
    }

    #[test]
    fn what_is_no_table_is_refused() {
        for (text, why) in [
            ("", "1: there is nothing here"),
            ("\n\n1,2\n", "3: there is no column grid_x"),
            ("grid_x,y\n", "1: there is no column block_x"),
            ("\"grid_x", "1: a quoted field that begins here does not end"),
        ] {
            let error = lines(text).unwrap_err();
            assert!(error.starts_with(why), "{text:?}: {error}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_and_lines_without_end_are_bad_lines() {
        let mut bytes = b"\xef\xbb\xbfgrid_x,block_x\n1,\xff\n".to_vec();
        bytes.extend(std::iter::repeat_n(b'1', LONGEST as usize + 10));
        bytes.extend(b"\n3,32\n\"4,32\n5,32");
        let found = verdicts(bytes);
        let expected = [
            (2, "the line is not UTF-8".to_owned()),
            (3, format!("the line is longer than {LONGEST} bytes")),
            (4, "fine".to_owned()),
            (5, "a quoted field that begins here does not end".to_owned()),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn times_are_the_kernels_own() {
        let measured = |column: &str, value: &str| {
            let found = lines(format!("grid_x,block_x,{column}\n1,32,{value}\n")).unwrap();
            found.into_iter().next().unwrap().asked.map(|asked| asked.measured_us)
        };
        assert_eq!(measured("measured_us", "4.5"), Ok(Some(4.5)));
        assert_eq!(measured("profiled_time_us", ""), Ok(None));
        assert_eq!(measured("time_us", "4"), Ok(Some(5.5)));
        assert_eq!(measured("gpu_mean_ns", "4000"), Ok(Some(5.1)));
        assert!(measured("time_us", "-1").unwrap_err().contains("is not a time"));
    }

    #[test]
    fn fields_of_what_is_asked_ask_the_same() {
        let asked = Question {
            name: Some("k".to_owned()),
            launch: LaunchConfig::new([1, 2, 3], [4, 5, 6]).with_dynamic_shared_bytes(7),
            kernel: Some(FunctionAttributes {
                registers: 8,
                static_shared_bytes: 9,
                local_bytes: 10,
                max_threads_per_block: 11,
                ..FunctionAttributes::default()
            }),
            measured_us: None,
        };
        assert_eq!(super::asked(&asked.fields()), Ok(asked.clone()));
        let unknown = Question { kernel: None, name: None, ..asked };
        assert_eq!(super::asked(&unknown.fields()), Ok(unknown));
    }

    proptest! {
        /// Any bytes end, in lines with rising numbers or in a refusal.
        #[test]
        fn any_bytes_are_read_to_their_end(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            if let Ok(found) = lines(&bytes) {
                prop_assert!(found.windows(2).all(|pair| pair[0].number < pair[1].number));
            }
        }
    }
}
