//! A message about a place in PTX text, and the one way in which such messages are shown.

use std::fmt;

/// A place in the PTX text; both counts start at 1, columns count bytes. 0 means
/// unknown.
///
/// Positions do not take part in comparisons: any two are equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Position {
    /// Line.
    pub line: u32,
    /// Column in bytes.
    pub column: u32,
}

impl PartialEq for Position {
    fn eq(&self, _: &Position) -> bool {
        true
    }
}

impl Eq for Position {}

/// A message with its place in the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnostic {
    /// A sentence about the problem, without a full stop.
    pub message: String,
    /// The place.
    pub position: Position,
}

impl Diagnostic {
    /// A message about `position`.
    pub fn new(position: Position, message: impl Into<String>) -> Self {
        Diagnostic { message: message.into(), position }
    }

    /// The message with `file`, line and column, and with the line of `source` that it is about, a
    /// caret under the place:
    ///
    /// ```text
    /// kernel.ptx:7:5: error: unknown register `%r9`
    ///     add.s32 %r1, %r9, 1;
    ///     ^
    /// ```
    pub fn render(&self, file: &str, source: &str) -> String {
        let Position { line, column } = self.position;
        let mut text = format!("{file}:{line}:{column}: error: {}", self.message);
        if let Some(shown) = (line as usize).checked_sub(1).and_then(|index| source.lines().nth(index)) {
            let indent: String = caret_indent(shown, column);
            text.push_str(&format!("\n{}\n{indent}^", clip(shown)));
        }
        text
    }
}

/// Longest part of a source line that is shown, in characters.
const SHOWN: usize = 200;

fn clip(line: &str) -> String {
    line.chars().take(SHOWN).collect()
}

/// White space as wide as what stands before `column`; tabs stay tabs, so that the caret lines up.
fn caret_indent(line: &str, column: u32) -> String {
    let before = (column as usize).saturating_sub(1);
    line.char_indices()
        .take_while(|(offset, _)| *offset < before)
        .take(SHOWN)
        .map(|(_, c)| if c == '\t' { '\t' } else { ' ' })
        .collect()
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "line {}, column {}: {}", self.position.line, self.position.column, self.message)
    }
}

impl std::error::Error for Diagnostic {}
