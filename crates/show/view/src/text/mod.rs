//! Text as every view of a session in a terminal writes it.
//!
//! * Here: tables whose widest column gives way, wrapped paragraphs, bars, and colours where they
//!   are wanted.
//! * [`figures`]: figures with the mark of their provenance. [`kernels`]: the columns of tables of
//!   kernels. [`savings`]: what a finding would save. [`verdict`]: what the time went into and what
//!   to change, in sentences. [`machine`]: what the machine did. [`fast`]: what `apex run --fast`
//!   did.
//!
//! Invariants: a string's width is counted in characters, because names of kernels, units and bars
//! are single-width. [`Table`], [`wrap`], [`shorten`] and [`Style::paint`] make text printable:
//! names of kernels, paths and commands are foreign text.

pub mod fast;
pub mod figures;
pub mod kernels;
pub mod machine;
pub mod savings;
pub mod verdict;

use apex_untrusted::printable;
use std::fmt;

/// Colours, or none.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Whether escape sequences are written.
    pub color: bool,
}

/// What a piece of text is, for the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Headings.
    Bold,
    /// What matters less.
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

/// How a column stands.
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
            match optional {
                Some(optional) if surplus > 0 => shown.remove(optional),
                _ => return (shown, widths),
            };
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

/// Words in lines of at most `width` characters, and never more than [`PARAGRAPH`], each line after
/// the first one indented by `indent`.
pub fn wrap(text: &str, width: usize, indent: &str) -> Vec<String> {
    let width = width.min(PARAGRAPH);
    let mut lines = vec![String::new()];
    for word in printable(text).split_whitespace() {
        let line = lines.last_mut().expect("never empty");
        let room = width.saturating_sub(line.chars().count() + 1);
        if line.trim().is_empty() {
            line.push_str(word);
        } else if word.chars().count() <= room {
            line.push(' ');
            line.push_str(word);
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
