//! A message as a file: one line with format, sequence, length and checksum, one with the label,
//! and the body.

/// Begins the first line.
const FORMAT: &str = "APEX spool 2";
/// Most bytes of a label.
pub const MOST_LABEL: usize = 256;
/// Most bytes of the two lines in front of a body.
pub const MOST_HEAD: usize = 80 + MOST_LABEL + 1;

/// A message that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which messages it replaces, and which replace it.
    pub key: String,
    /// Its number among those of its key.
    pub sequence: u64,
    /// What its writer says of it to those who deliver it: at most [`MOST_LABEL`] printable ASCII
    /// characters.
    pub label: String,
    /// The message to deliver.
    pub body: Vec<u8>,
}

/// Whether a text can be a key: it is part of a file's name.
pub fn is_key(key: &str) -> bool {
    (1..=64).contains(&key.len()) && key.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
}

/// Whether a text can be a label: it is a line of the file.
pub fn is_label(label: &str) -> bool {
    label.len() <= MOST_LABEL && label.bytes().all(|c| matches!(c, b' '..=b'~'))
}

/// The label in the first bytes of an entry's file; `None` if they are no entry's. The entry may
/// still be damaged.
pub fn label(head: &[u8]) -> Option<&str> {
    let mut lines = head.split(|&byte| byte == b'\n');
    let (first, label) = (lines.next()?, std::str::from_utf8(lines.next()?).ok()?);
    // (Behind the label's line is something, if only nothing.)
    lines.next()?;
    (first.starts_with(FORMAT.as_bytes()) && is_label(label)).then_some(label)
}

impl Entry {
    fn checksum(&self) -> u32 {
        let mut sum = crc32fast::Hasher::new();
        sum.update(self.key.as_bytes());
        sum.update(&self.sequence.to_le_bytes());
        // No label holds the end of its line, so that nothing of it can be taken for the body's.
        sum.update(self.label.as_bytes());
        sum.update(b"\n");
        sum.update(&self.body);
        sum.finalize()
    }

    /// The bytes of its file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (length, sum) = (self.body.len(), self.checksum());
        let head = format!("{FORMAT} {} {length} {sum:08x}\n{}\n", self.sequence, self.label);
        [head.as_bytes(), &self.body].concat()
    }

    /// The entry in a file; `None` if the file is damaged, or another key's.
    pub fn parse(key: &str, bytes: &[u8]) -> Option<Self> {
        let label = label(&bytes[..bytes.len().min(MOST_HEAD)])?.to_owned();
        let end = bytes.iter().position(|&byte| byte == b'\n')?;
        let head = std::str::from_utf8(&bytes[..end]).ok()?.strip_prefix(FORMAT)?.strip_prefix(' ')?;
        let mut words = head.split(' ');
        let (sequence, length, sum) = (words.next()?, words.next()?, words.next()?);
        let body = bytes[end + 1 + label.len() + 1..].to_vec();
        let entry = Self { key: key.to_owned(), sequence: sequence.parse().ok()?, label, body };
        let agrees = length.parse() == Ok(entry.body.len()) && sum == format!("{:08x}", entry.checksum());
        // The numbers are written in one way only.
        (agrees && entry.to_bytes() == bytes).then_some(entry)
    }
}
