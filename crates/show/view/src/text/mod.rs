//! Text as every view of a session in a terminal writes it.
//!
//! * Here: tables whose widest column gives way, wrapped paragraphs, bars, and colours where they
//!   are wanted.
//! * [`figures`]: figures with the mark of their provenance. [`kernels`]: the columns of tables of
//!   kernels. [`savings`]: what a finding would save. [`verdict`]: what the time went into and what
//!   to change, in sentences. [`machine`]: what the machine did. [`energy`]: what
//!   it took. [`fast`]: what `apex run --fast`
//!   did. [`ranks`]: the rank that the others wait for.
//!
//! Invariants: a string's width is counted in characters, because names of kernels, units and bars
//! are single-width. [`Table`], [`wrap`], [`shorten`] and [`Style::paint`] make text printable:
//! names of kernels, paths and commands are foreign text.

pub mod capability;
pub mod energy;
pub mod fast;
pub mod figures;
pub mod kernels;
pub mod machine;
pub mod ranks;
pub mod savings;
pub mod universal;
pub mod verdict;

use apex_untrusted::printable;
use std::fmt;

/// Colours, or none.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Whether escape sequences are written.
    pub color: bool,
}

/// Kind of a piece of text, for the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Headings.
    Bold,
    /// Text that matters less.
    Dim,
    /// Worth a look.
    Warning,
    /// Worth money.
    Bad,
}

impl Style {
    /// The text in an ink.
    pub fn paint(self, ink: Ink, text: impl fmt::Display) -> String {
        let code = match ink {
            Ink::Bold => "1",
            Ink::Dim => "2",
            Ink::Warning => "33",
            Ink::Bad => "31;1",
        };
        let text = text.to_string();
        let text = printable(&text);
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.into_owned() }
    }
}

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
    /// Text, cut in the middle where the table is too wide. One column of a table.
    Flexible,
    /// Numbers that are left out where the table is too wide and its flexible column would become
    /// hard to read; the last optional column goes first.
    Optional,
    /// Text that is left out likewise.
    OptionalLeft,
}

/// A table of plain text; colours are put on whole lines, after the widths are known.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Align {
    fn is_optional(self) -> bool {
        matches!(self, Self::Optional | Self::OptionalLeft)
    }
}

/// Fewest characters of a flexible column that can be read; optional columns go before it gets
/// narrower.
const LEGIBLE: usize = 24;
/// Fewest characters that a flexible column keeps.
const NARROWEST: usize = 12;
/// Fewest characters that a column of text keeps where the terminal is very narrow.
const LEAST_TEXT: usize = 8;
const GAP: &str = "  ";

impl Table {
    /// An empty table.
    pub fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row: a cell for each column.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells.iter().map(|cell| printable(cell).into_owned()).collect());
    }

    /// The header line and the rows, at most `width` characters wide if the columns can give so
    /// much.
    pub fn lines(&self, width: usize) -> Vec<String> {
        let (shown, widths) = self.layout(width);
        self.rows_as_lines(&shown, &widths)
    }

    /// The headings that [`Self::lines`] shows in this width.
    pub fn headings(&self, width: usize) -> Vec<&'static str> {
        self.layout(width).0.into_iter().map(|column| self.columns[column].0).collect()
    }

    /// The columns that are shown, and how wide each is.
    fn layout(&self, width: usize) -> (Vec<usize>, Vec<usize>) {
        let mut shown: Vec<_> = (0..self.columns.len()).collect();
        loop {
            let mut widths: Vec<_> = shown.iter().map(|&column| self.widest(column)).collect();
            let total = widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1);
            let mut surplus = total.saturating_sub(width);
            let optional = shown.iter().rposition(|&column| self.columns[column].1.is_optional());
            let narrowest = if optional.is_some() { LEGIBLE } else { NARROWEST };
            if let Some(flexible) = shown.iter().position(|&column| self.columns[column].1 == Align::Flexible)
            {
                let given = surplus.min(widths[flexible].saturating_sub(narrowest));
                widths[flexible] -= given;
                surplus -= given;
            }
            let numbers = || shown.iter().filter(|&&column| self.columns[column].1 == Align::Right);
            match optional {
                Some(optional) if surplus > 0 => shown.remove(optional),
                // In a terminal so narrow, the last numbers tell most.
                None if surplus > self.spare(&shown, &widths) && numbers().count() > 1 => {
                    let first = shown.iter().position(|&column| self.columns[column].1 == Align::Right);
                    shown.remove(first.unwrap_or_default())
                }
                _ => {
                    self.narrow(&shown, &mut widths, surplus);
                    return (shown, widths);
                }
            };
        }
    }

    /// Whether a column holds text that can be shortened.
    fn is_text(&self, column: usize) -> bool {
        matches!(self.columns[column].1, Align::Left | Align::Flexible)
    }

    /// Characters that columns of text can give.
    fn spare(&self, shown: &[usize], widths: &[usize]) -> usize {
        let texts = shown.iter().zip(widths).filter(|&(&column, _)| self.is_text(column));
        texts.map(|(_, width)| width.saturating_sub(LEAST_TEXT)).sum()
    }

    /// Takes `surplus` characters from columns of text, the widest first: in a terminal so narrow
    /// that the flexible column alone cannot give them.
    fn narrow(&self, shown: &[usize], widths: &mut [usize], surplus: usize) {
        let is_text = |place: &usize| self.is_text(shown[*place]);
        for _ in 0..surplus {
            let texts = (0..widths.len()).filter(is_text);
            match texts.max_by_key(|&place| widths[place]).filter(|&place| widths[place] > LEAST_TEXT) {
                Some(widest) => widths[widest] -= 1,
                None => return,
            }
        }
    }

    fn widest(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].chars().count());
        cells.fold(self.columns[column].0.chars().count(), usize::max).min(WIDEST)
    }

    fn rows_as_lines(&self, shown: &[usize], widths: &[usize]) -> Vec<String> {
        let header: Vec<_> = self.columns.iter().map(|(title, _)| title.to_string()).collect();
        let line = |row: &Vec<String>| {
            let cells = shown.iter().zip(widths).map(|(&column, &width)| {
                let cell = shorten(&row[column], width);
                match self.columns[column].1 {
                    Align::Left | Align::OptionalLeft | Align::Flexible => format!("{cell:width$}"),
                    Align::Right | Align::Optional => format!("{cell:>width$}"),
                }
            });
            cells.collect::<Vec<_>>().join(GAP).trim_end().to_string()
        };
        std::iter::once(&header).chain(&self.rows).map(line).collect()
    }
}

/// Most characters of a cell, of text that is filled up with blanks, and of a bar: far more than a
/// terminal is wide, and below the 65,535 from which on `format!` panics.
pub const WIDEST: usize = 10_000;

/// The text in at most `width` characters: its middle gives way, because names differ at both ends.
pub fn shorten(text: &str, width: usize) -> String {
    let text = printable(text);
    let length = text.chars().count();
    if length <= width {
        return text.into_owned();
    }
    let kept = width.saturating_sub(1);
    let head: String = text.chars().take(kept.div_ceil(2)).collect();
    let tail: String = text.chars().skip(length - kept / 2).collect();
    format!("{head}…{tail}")
}

/// Most characters of a line of a paragraph: longer ones are hard to read.
pub const PARAGRAPH: usize = 100;

/// Narrower lines do not break words: nothing can be read there.
const LEAST_BROKEN: usize = 16;

/// Wider lines do not break words either: what they hold may be searched or copied.
const LEAST_UNBROKEN: usize = PARAGRAPH - 8;

/// A word in parts of at most `width` characters. They end behind a character at which paths and
/// lists may be broken, if there is one in the second half of the part.
fn parts(word: &str, width: usize) -> Vec<String> {
    let (mut parts, mut rest) = (Vec::new(), word.to_owned());
    while rest.chars().count() > width {
        let end = |count: usize| rest.char_indices().nth(count).map_or(rest.len(), |(at, _)| at);
        let (half, whole) = (end(width / 2), end(width));
        let gentle = rest[half..whole].rfind(['/', ',', ';', '=', '-', '_']).map(|at| half + at + 1);
        let tail = rest.split_off(gentle.unwrap_or(whole));
        parts.push(std::mem::replace(&mut rest, tail));
    }
    parts.push(rest);
    parts
}

/// Words in lines of at most `width` characters, and, as long as a word allows, of no more than
/// [`PARAGRAPH`]. Each line after the first one is indented by `indent`. A word that is wider than
/// the terminal is broken.
pub fn wrap(text: &str, width: usize, indent: &str) -> Vec<String> {
    let breaks = (LEAST_BROKEN..LEAST_UNBROKEN).contains(&width);
    let widest_word = if breaks { width - indent.len() } else { usize::MAX };
    let width = width.min(PARAGRAPH);
    let mut lines = vec![String::new()];
    let text = printable(text);
    for word in text.split_whitespace().flat_map(|word| parts(word, widest_word)) {
        let line = lines.last_mut().expect("never empty");
        let room = width.saturating_sub(line.chars().count() + 1);
        if line.trim().is_empty() {
            line.push_str(&word);
        } else if word.chars().count() <= room {
            line.push(' ');
            line.push_str(&word);
        } else {
            lines.push(format!("{indent}{word}"));
        }
    }
    lines
}

/// A bar of `width` characters, filled to `ratio`, in eighths.
pub fn bar(ratio: f64, width: usize) -> String {
    let width = width.min(WIDEST);
    const PARTS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (ratio.clamp(0.0, 1.0) * 8.0 * width as f64).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(PARTS[eighths % 8]);
    }
    format!("{bar:width$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flexible_column_gives_way_and_the_others_stay() {
        let mut table =
            Table::new(&[("kernel", Align::Flexible), ("time", Align::Right), ("by", Align::Left)]);
        table.row(vec!["void very::long<name, of, a, kernel>(int)".into(), "1.50 ms".into(), "SM".into()]);
        table.row(vec!["short".into(), "2 µs".into(), "".into()]);
        for width in [30, 40, 50, 200] {
            let lines = table.lines(width);
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{lines:#?}");
            assert!(lines[1].starts_with("void ") && lines[1].ends_with("1.50 ms  SM"), "{}", lines[1]);
        }
        assert!(table.lines(200)[1].contains("void very::long<name, of, a, kernel>(int)"));
        assert_eq!(table.lines(20)[2].split_whitespace().collect::<Vec<_>>(), ["short", "2", "µs"]);
    }

    #[test]
    fn optional_columns_go_from_the_right_and_only_where_they_must() {
        let columns =
            [("name", Align::Flexible), ("a", Align::Optional), ("b", Align::Right), ("c", Align::Optional)];
        let mut table = Table::new(&columns);
        table.row(vec!["n".repeat(40), "1111".into(), "2222".into(), "3333".into()]);
        let values = |width| table.lines(width)[1].split_whitespace().skip(1).collect::<Vec<_>>().join(" ");
        assert_eq!(values(58), "1111 2222 3333");
        assert_eq!(values(42), "1111 2222 3333", "the name gives way first, as long as it can be read");
        assert_eq!(values(41), "1111 2222");
        assert_eq!(values(35), "2222");
        assert_eq!((values(18), table.lines(18)[1].chars().count()), ("2222".into(), 18), "then all the way");
        assert_eq!(values(3), "2222");
        assert_eq!(table.headings(58), ["name", "a", "b", "c"]);
        assert_eq!(table.headings(35), ["name", "b"]);
    }

    #[test]
    fn cells_of_any_width_are_shown() {
        let columns = [
            ("a", Align::Flexible),
            ("b", Align::Left),
            ("c", Align::Right),
            ("d", Align::Optional),
            ("e", Align::OptionalLeft),
        ];
        for length in [WIDEST, WIDEST + 1, 65_535, 65_536, 200_000] {
            for (wide, _) in columns.iter().enumerate() {
                let mut table = Table::new(&columns);
                let cell = |column| if column == wide { "x".repeat(length) } else { "y".to_owned() };
                table.row((0..columns.len()).map(cell).collect());
                let line = &table.lines(usize::MAX)[1];
                let cells: Vec<_> = line.split_whitespace().collect();
                assert_eq!(cells.len(), columns.len());
                assert_eq!(cells[wide].chars().count(), WIDEST, "{length}");
                assert_eq!(cells[wide].contains('…'), length > WIDEST);
            }
            assert_eq!(bar(0.5, length).chars().count(), WIDEST);
        }
    }

    #[test]
    fn shortened_names_keep_both_ends() {
        assert_eq!(shorten("abcdefghij", 10), "abcdefghij");
        assert_eq!(shorten("abcdefghij", 5), "ab…ij");
        assert_eq!(shorten("äöüßäöüß", 4), "äö…ß");
        assert_eq!(shorten("abc", 0), "…");
    }

    #[test]
    fn wrapped_lines_fit_unless_a_word_does_not() {
        assert_eq!(wrap("a bb ccc dddd", 6, " "), ["a bb", " ccc", " dddd"]);
        assert_eq!(wrap("a immeasurable b", 4, ""), ["a", "immeasurable", "b"]);
    }

    #[test]
    fn numbers_go_where_nothing_else_can_and_the_last_ones_stay() {
        let columns = [("kernel", Align::Flexible), ("launches", Align::Right), ("time", Align::Right)];
        let mut table = Table::new(&columns);
        table.row(vec!["k".repeat(40), "34,223".into(), "13.7 µs ±<1% ×50".into()]);
        let line = |width| table.lines(width)[1].clone();
        assert!(line(40).contains("34,223"));
        assert!(!line(30).contains("34,223") && line(30).ends_with("×50"), "{}", line(30));
        assert!([30, 33, 36, 40].into_iter().all(|width| line(width).chars().count() <= width));
    }

    #[test]
    fn words_that_are_wider_than_a_line_are_broken_where_paths_are() {
        let path = "/home/somebody/experiments/train_the_large_model.py";
        for width in [16, 20, 40, 51] {
            let lines = wrap(&format!("python {path} --fast"), width, "  ");
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{lines:#?}");
            let joined: String = lines.iter().map(|line| line.trim()).collect();
            assert_eq!(joined.replace(' ', ""), format!("python{path}--fast"), "nothing is lost");
        }
        assert_eq!(wrap(path, 30, "  ")[0], "/home/somebody/experiments/");
        assert_eq!(wrap(&"x".repeat(50), 20, "")[0].len(), 20, "or anywhere");
    }

    #[test]
    fn columns_of_text_give_way_in_a_terminal_that_is_narrower_than_they_are() {
        let columns = [("account", Align::Left), ("function", Align::Flexible), ("self", Align::Right)];
        let mut table = Table::new(&columns);
        table.row(vec!["idle: waiting for the host".into(), "f".repeat(40), "12%".into()]);
        for width in [24, 30, 40, 60] {
            let line = &table.lines(width)[1];
            assert!(line.chars().count() <= width && line.ends_with("12%"), "{width}: {line}");
        }
    }

    #[test]
    fn foreign_text_comes_out_printable() {
        let foreign = "a\x1b[31m\nb\u{9b}c\u{202e}d";
        let shown = "a\\x1b[31m\\nb\\x9bc\\u{202e}d";
        let mut table = Table::new(&[("", Align::Flexible), ("", Align::Left)]);
        table.row(vec![foreign.into(), foreign.into()]);
        assert_eq!(table.lines(100)[1], format!("{shown}  {shown}"));
        assert_eq!(wrap(foreign, 100, ""), [shown]);
        assert_eq!(shorten(foreign, 100), shown);
        assert_eq!(Style { color: false }.paint(Ink::Bold, foreign), shown);
        assert_eq!(Style { color: true }.paint(Ink::Bold, foreign), format!("\x1b[1m{shown}\x1b[0m"));
    }

    #[test]
    fn bars_are_as_wide_as_asked() {
        for (ratio, bar_text) in
            [(0.0, "    "), (0.5, "██  "), (0.53125, "██▏ "), (1.0, "████"), (7.0, "████")]
        {
            assert_eq!(bar(ratio, 4), bar_text, "{ratio}");
        }
    }
}
