//! A message as a file: one line with format, sequence, length and checksum, and the body.

/// Begins the first line.
const FORMAT: &str = "APEX spool 1";
/// Most bytes of the first line.
pub const MOST_HEAD: usize = 80;

/// A message that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which messages it replaces, and which replace it.
    pub key: String,
    /// Its number among those of its key.
    pub sequence: u64,
    /// What is delivered.
    pub body: Vec<u8>,
}

/// Whether a text can be a key: it is part of a file's name.
pub fn is_key(key: &str) -> bool {
    (1..=64).contains(&key.len()) && key.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
}

impl Entry {
    fn checksum(&self) -> u32 {
        let mut sum = crc32fast::Hasher::new();
        sum.update(self.key.as_bytes());
        sum.update(&self.sequence.to_le_bytes());
        sum.update(&self.body);
        sum.finalize()
    }

    /// The bytes of its file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let head = format!("{FORMAT} {} {} {:08x}\n", self.sequence, self.body.len(), self.checksum());
        [head.as_bytes(), &self.body].concat()
    }

    /// The entry in a file; `None` if the file is damaged, or another key's.
    pub fn parse(key: &str, bytes: &[u8]) -> Option<Self> {
        let end = bytes.iter().take(MOST_HEAD).position(|&byte| byte == b'\n')?;
        let head = std::str::from_utf8(&bytes[..end]).ok()?.strip_prefix(FORMAT)?.strip_prefix(' ')?;
        let mut words = head.split(' ');
        let (sequence, length, sum) = (words.next()?, words.next()?, words.next()?);
        let body = bytes[end + 1..].to_vec();
        let entry = Self { key: key.to_owned(), sequence: sequence.parse().ok()?, body };
        let agrees = length.parse() == Ok(entry.body.len()) && sum == format!("{:08x}", entry.checksum());
        // The numbers are written in one way only.
        (agrees && entry.to_bytes() == bytes).then_some(entry)
    }
}
