//! Reading: lines of bounded length, and the records that they make up.
//!
//! A quote is one only where a field begins with it, and a line end is `\n` or `\r\n`. Any bytes
//! are read to their end, in time that grows with their number.

use std::io::{self, BufRead, Read};

/// The fields of a record: at least one. `None` is an empty field without quotes.
pub type Record = Vec<Option<String>>;

/// The number of a line, from 1, and what it holds or why it cannot be read.
pub type Numbered<T> = (u64, Result<T, String>);

/// Reads records from a stream.
pub struct Reader<R> {
    from: R,
    /// Bytes of the longest line or record.
    longest: u64,
    /// Lines read.
    number: u64,
    /// Whether the rest of a line that is too long lies ahead: it is passed over when the next line
    /// is asked for, as it may have no end.
    within_line: bool,
}

impl<R: BufRead> Reader<R> {
    /// Reads from `from`, where `lines` lines have been read already. A record of more than
    /// `longest` bytes is an error.
    pub fn new(from: R, lines: u64, longest: u64) -> Self {
        Self { from, longest, number: lines, within_line: false }
    }

    /// The next record and the line on which it begins; a blank line is a record of one field.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn next_record(&mut self) -> io::Result<Option<Numbered<Record>>> {
        let (mut parser, mut bytes, mut begins) = (Parser::default(), 0, None);
        while let Some((number, text)) = self.next_line()? {
            let begins = *begins.get_or_insert(number);
            let text = match text {
                Ok(text) => text,
                Err(why) => return Ok(Some((begins, Err(why)))),
            };
            bytes += text.len() as u64;
            if bytes > self.longest {
                break;
            }
            if parser.ends_with(&text) {
                return Ok(Some((begins, Ok(parser.record))));
            }
        }
        let unfinished = "a quoted field that begins here does not end";
        Ok(begins.map(|begins| (begins, Err(unfinished.to_owned()))))
    }

    /// The next line, with its end.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn next_line(&mut self) -> io::Result<Option<Numbered<String>>> {
        if std::mem::take(&mut self.within_line) {
            self.from.skip_until(b'\n')?;
        }
        let mut bytes = Vec::new();
        if (&mut self.from).take(self.longest).read_until(b'\n', &mut bytes)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let text = if bytes.len() as u64 == self.longest && bytes.last() != Some(&b'\n') {
            self.within_line = true;
            Err(format!("the line is longer than {} bytes", self.longest))
        } else {
            String::from_utf8(bytes).map_err(|_| "the line is not UTF-8".to_owned())
        };
        Ok(Some((self.number, text)))
    }
}

/// The records of a text.
pub fn records(text: &str) -> impl Iterator<Item = Numbered<Record>> {
    let mut reader = Reader::new(text.as_bytes(), 0, u64::MAX);
    std::iter::from_fn(move || reader.next_record().expect("a slice can be read"))
}

/// Takes a record apart, line by line.
#[derive(Default)]
struct Parser {
    record: Record,
    /// The text of the field that is being read.
    text: String,
    position: Position,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Position {
    #[default]
    Start,
    Unquoted,
    Quoted,
    /// Behind a quote within quotes: it ends them unless another one follows.
    Quote,
}

impl Parser {
    /// Takes the record's next line; whether the record ends with it.
    fn ends_with(&mut self, line: &str) -> bool {
        let text = line.strip_suffix('\n').unwrap_or(line);
        let text = text.strip_suffix('\r').unwrap_or(text);
        for character in text.chars() {
            self.position = match (self.position, character) {
                (Position::Start, '"') => Position::Quoted,
                (Position::Quoted, '"') => Position::Quote,
                (Position::Start | Position::Unquoted | Position::Quote, ',') => {
                    self.end_field();
                    Position::Start
                }
                (position, character) => {
                    self.text.push(character);
                    match position {
                        Position::Quoted => Position::Quoted,
                        Position::Quote if character == '"' => Position::Quoted,
                        _ => Position::Unquoted,
                    }
                }
            };
        }
        if self.position == Position::Quoted {
            self.text.push_str(&line[text.len()..]);
            return false;
        }
        self.end_field();
        true
    }

    fn end_field(&mut self) {
        let text = std::mem::take(&mut self.text);
        self.record.push((self.position != Position::Start).then_some(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Writer;
    use proptest::prelude::*;

    /// The fields of the first record.
    fn fields(text: &str) -> Vec<Option<String>> {
        records(text).next().unwrap().1.unwrap()
    }

    #[test]
    fn null_and_the_empty_string_differ() {
        assert_eq!(fields("a,,\"\",b\n"), [Some("a".into()), None, Some("".into()), Some("b".into())]);
        assert_eq!(fields("\n"), [None]);
        assert_eq!(fields("\"\""), [Some("".into())]);
    }

    #[test]
    fn quotes_hold_commas_quotes_and_line_ends() {
        assert_eq!(fields("\"a,\"\"b\"\"\r\nc\",d\r\n"), [Some("a,\"b\"\r\nc".into()), Some("d".into())]);
        // Within a field, and behind the quotes that end it, a quote is a character like any other.
        assert_eq!(fields("a\"b\",\"c\"d\"\n"), [Some("a\"b\"".into()), Some("cd\"".into())]);
    }

    #[test]
    fn a_record_has_the_number_of_the_line_on_which_it_begins() {
        let numbers: Vec<u64> = records("a\n\"b\n\nb\"\r\n\nc").map(|(number, _)| number).collect();
        assert_eq!(numbers, [1, 2, 5, 6]);
    }

    #[test]
    fn what_is_wrong_does_not_keep_the_reader_from_the_next_record() {
        let bytes = b"1,\xff\n123456789012\n\"12\n345678901\"\n2\n\"3\n";
        let mut reader = Reader::new(&bytes[..], 4, 11);
        let mut found = Vec::new();
        while let Some(record) = reader.next_record().unwrap() {
            found.push(record);
        }
        let unfinished = || Err("a quoted field that begins here does not end".to_owned());
        let expected = [
            (5, Err("the line is not UTF-8".to_owned())),
            (6, Err("the line is longer than 11 bytes".to_owned())),
            (7, unfinished()),
            (9, Ok(vec![Some("2".to_owned())])),
            (10, unfinished()),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_line_without_end_is_known_to_be_too_long_before_it_ends() {
        let mut reader = Reader::new(io::BufReader::new(io::repeat(0)), 0, 1000);
        assert!(reader.next_record().unwrap().unwrap().1.unwrap_err().contains("longer than 1000"));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            table in prop::collection::vec(
                prop::collection::vec(prop::option::of("([a-z,\"\r\n\t ]|\\PC){0,6}"), 1..5), 0..6),
        ) {
            for newlines in [false, true] {
                let mut text = Vec::new();
                let mut csv = if newlines { Writer::with_newlines(&mut text) } else { Writer::new(&mut text) };
                for record in &table {
                    csv.record(record.iter().map(Option::as_deref)).unwrap();
                }
                let text = String::from_utf8(text).unwrap();
                let found: Vec<Record> = records(&text).map(|(_, record)| record.unwrap()).collect();
                prop_assert_eq!(&found, &table, "{:?}", text);
            }
        }

        #[test]
        fn any_bytes_are_read_to_their_end(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut reader = Reader::new(&bytes[..], 0, 50);
            let mut last = 0;
            while let Some((number, record)) = reader.next_record().unwrap() {
                prop_assert!(number > last);
                prop_assert!(record.is_ok_and(|fields| !fields.is_empty()) || number <= bytes.len() as u64);
                last = number;
            }
        }
    }
}
