//! Lines of a damaged text file: which of them could not be read, and what they probably were.
//!
//! A file of lines, one JSON document each, is read as far as its lines are sound. Where lines are
//! numbered by their order, a reader must know what a damaged line was: [`kind`] tells it by how
//! the line begins, and [`pieces`] takes lines apart between which the line break was destroyed.

/// Changed bytes at which the beginning of a line is still recognised.
const MOST_CHANGED: usize = 2;

/// Lines that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unread {
    count: u64,
    first: u64,
    why: String,
}

impl Unread {
    /// Adds a line by its number, which counts from 1, and why it could not be read.
    pub fn add(&mut self, line: u64, why: &str) {
        if self.count == 0 {
            (self.first, self.why) = (line, why.to_owned());
        }
        self.count += 1;
    }

    /// Number of these lines.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The number of the first one, which counts from 1; `None` if all lines were read.
    pub fn first(&self) -> Option<u64> {
        (self.count > 0).then_some(self.first)
    }

    /// Says how many there are and which is the first; `None` if all lines were read.
    pub fn said(&self) -> Option<String> {
        let Self { count, first, why } = self;
        match count {
            0 => None,
            1 => Some(format!("line {first} was not read ({why})")),
            _ => Some(format!("{count} lines were not read, the first of them is line {first} ({why})")),
        }
    }
}

/// Which of these beginnings a line has, but for two changed bytes.
pub fn kind(line: &[u8], beginnings: &[&str]) -> Option<usize> {
    let changed = |beginning: &&str| match line.get(..beginning.len()) {
        Some(found) => found.iter().zip(beginning.as_bytes()).filter(|(a, b)| a != b).count(),
        None => usize::MAX,
    };
    beginnings.iter().position(|beginning| changed(beginning) <= MOST_CHANGED)
}

/// The parts of a line that begin like lines. The beginnings must not occur inside of sound lines.
pub fn pieces<'l>(line: &'l [u8], beginnings: &[&str]) -> Vec<&'l [u8]> {
    let begins = |at: &usize| beginnings.iter().any(|text| line[*at..].starts_with(text.as_bytes()));
    let mut starts: Vec<usize> = (1..line.len()).filter(begins).collect();
    starts.insert(0, 0);
    let ends = starts.iter().skip(1).copied().chain([line.len()]);
    starts.iter().zip(ends).map(|(&from, to)| &line[from..to]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGINNINGS: [&str; 2] = ["{\"frame\":[", "{\"stack\":["];

    #[test]
    fn the_first_line_is_named_and_the_others_are_counted() {
        let mut unread = Unread::default();
        assert_eq!((unread.said(), unread.first()), (None, None));
        unread.add(7, "damaged");
        assert_eq!(unread.said().unwrap(), "line 7 was not read (damaged)");
        unread.add(9, "too long");
        let said = "2 lines were not read, the first of them is line 7 (damaged)";
        assert_eq!((unread.said().unwrap().as_str(), unread.count(), unread.first()), (said, 2, Some(7)));
    }

    #[test]
    fn a_line_is_known_by_its_beginning_as_long_as_two_bytes_are_changed() {
        for (line, expected) in [
            ("{\"frame\":[1", Some(0)),
            ("{\"stack\":[1", Some(1)),
            ("{\"stbck\":[", Some(1)),
            ("x\"stbck\":[", Some(1)),
            ("x\"stbck\":{", None),
            ("{\"stack", None),
            ("", None),
        ] {
            assert_eq!(kind(line.as_bytes(), &BEGINNINGS), expected, "{line}");
        }
    }

    #[test]
    fn lines_without_a_break_between_them_are_taken_apart() {
        let of = |line: &'static str| pieces(line.as_bytes(), &BEGINNINGS);
        assert_eq!(of("{\"frame\":[1]}"), [b"{\"frame\":[1]}"]);
        let both = of("{\"frame\":[1]}\u{b}{\"stack\":[2]}");
        assert_eq!(both, [&b"{\"frame\":[1]}\x0b"[..], b"{\"stack\":[2]}"]);
        assert_eq!(of("garbage{\"stack\":[2]}").len(), 2);
    }
}
