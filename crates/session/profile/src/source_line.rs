//! Statements in source text: the one that a line is part of, on one line.
//!
//! A scan from the top keeps strings, comments and brackets apart, as far as Python, C++ and Rust
//! agree on them. Invariants: any text gives an answer, in time linear in its length; a statement
//! has at most [`COLUMNS`] characters, none of which is a control character.

use std::collections::BTreeMap;

/// Characters of a statement; what is longer ends in an ellipsis.
pub const COLUMNS: usize = 100;
/// Lines of a statement that are joined.
const MOST_LINES: usize = 12;
/// Lines of a text whose functions are read.
const MOST_OF_FUNCTIONS: usize = 20_000;

/// A scan's state between two lines.
#[derive(Clone, Copy, Default, PartialEq)]
struct State {
    /// Round and square brackets that are open.
    depth: u32,
    /// The quotation mark of a string over several lines; `*` for a comment over several lines.
    inside: Option<char>,
    /// Whether the line ends in a backslash.
    continues: bool,
}

impl State {
    fn is_between_statements(self) -> bool {
        self == Self::default()
    }
}

/// Code of a text.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The statements of each function of Python, by its name, with their first lines: of functions
    /// in functions by the innermost one's, and of none by the empty name.
    pub functions: BTreeMap<String, Vec<(u32, String)>>,
    /// The statements that the lines are part of; without those that do not exist or are empty.
    pub statements: BTreeMap<u32, String>,
    /// The innermost loop of the same function around each line, of Python: its line and its
    /// statement.
    pub loops: BTreeMap<u32, (u32, String)>,
}

/// The statements that these lines, from 1, are part of, and the loops around them.
pub(crate) fn find(text: &str, lines: &[u32], is_python: bool) -> Found {
    let mut found = Found { statements: statements(text, lines, is_python), ..Found::default() };
    if is_python {
        found.loops = loops(text, lines);
        found.functions = functions(text);
    }
    found
}

/// A statement that other statements stand in, while a text is read from the top.
struct Open<'t> {
    indentation: usize,
    line: u32,
    text: &'t str,
}

/// The loops of Python around these lines.
fn loops(text: &str, lines: &[u32]) -> BTreeMap<u32, (u32, String)> {
    let mut found = BTreeMap::new();
    let (mut state, mut around): (_, Vec<Open<'_>>) = (State::default(), Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        let code = line.trim_start();
        if state.is_between_statements() && !code.is_empty() && !code.starts_with('#') {
            let indentation = line.len() - code.len();
            around.retain(|open| open.indentation < indentation);
            around.push(Open { indentation, line: number, text: code });
        }
        if lines.contains(&number) {
            found.extend(innermost(&around).map(|of| (number, of)));
        }
        state = scan(state, line, true).0;
    }
    found
}

/// The statements of each function of Python with its decorators, but without documentation.
fn functions(text: &str) -> BTreeMap<String, Vec<(u32, String)>> {
    let mut found: BTreeMap<String, Vec<(u32, String)>> = BTreeMap::new();
    let (mut state, mut first, mut parts) = (State::default(), 1, Vec::new());
    let (mut around, mut decorators): (Vec<Open<'_>>, Vec<(u32, String)>) = Default::default();
    for (number, line) in (1..).zip(text.lines()).take(MOST_OF_FUNCTIONS) {
        let text = line.trim_start();
        if state.is_between_statements() {
            (first, parts) = (number, Vec::new());
            if !text.is_empty() && !text.starts_with('#') {
                let indentation = line.len() - text.len();
                around.retain(|open| open.indentation < indentation);
                around.extend(defined(text).map(|text| Open { indentation, line: number, text }));
            }
        }
        let code;
        (state, code) = scan(state, line, true);
        parts.push(code);
        let is_whole = state.is_between_statements() && !parts[0].is_empty();
        let defines = around.last().is_some_and(|open| open.line == first);
        let name = around.last().map_or("", |open| open.text);
        if is_whole && defines && !decorators.is_empty() {
            found.entry(name.to_owned()).or_default().append(&mut decorators);
        } else if is_whole && !defines && !parts[0].starts_with(['"', '\'']) {
            let statement = joined(&parts[..parts.len().min(MOST_LINES)]);
            match statement.starts_with('@') {
                true => decorators.push((first, statement)),
                false => found.entry(name.to_owned()).or_default().push((first, statement)),
            }
        }
    }
    found
}

/// A statement of Python.
#[derive(Debug)]
pub(crate) struct Written {
    /// Its first and last line, from 1.
    pub line: u32,
    pub end: u32,
    /// Blanks in front of it.
    pub indent: usize,
    /// Its code on one line, without comments.
    pub text: String,
}

/// The statements of the first `most` lines of a text of Python.
pub(crate) fn written(text: &str, most: usize) -> Vec<Written> {
    let mut found: Vec<Written> = Vec::new();
    let mut state = State::default();
    for (number, line) in (1..).zip(text.lines()).take(most) {
        let begins = state.is_between_statements();
        let code;
        (state, code) = scan(state, line, true);
        match found.last_mut().filter(|_| !begins) {
            Some(last) => {
                last.end = number;
                last.text.push_str(if last.text.ends_with(['(', '[', '{']) { "" } else { " " });
                last.text.push_str(&code);
            }
            None if code.is_empty() => {}
            None => {
                let indent = line.len() - line.trim_start().len();
                found.push(Written { line: number, end: number, indent, text: code });
            }
        }
    }
    found
}

/// The name of the function that a statement of Python begins to define.
fn defined(statement: &str) -> Option<&str> {
    let rest = statement.strip_prefix("async ").unwrap_or(statement).strip_prefix("def ")?;
    rest.split(['(', '[', ' ', ':']).next().filter(|name| !name.is_empty())
}

/// The innermost loop around the last of these statements, in its function.
fn innermost(around: &[Open<'_>]) -> Option<(u32, String)> {
    let starts = |open: &Open<'_>, words: &[&str]| words.iter().any(|word| open.text.starts_with(word));
    let outer = around.iter().rev().skip(1);
    let mut of_function = outer.take_while(|open| !starts(open, &["def ", "class ", "async def "]));
    let of = of_function.find(|open| starts(open, &["for ", "while ", "async for "]))?;
    let header = scan(State::default(), of.text, true).1;
    Some((of.line, joined(&[header.trim_end_matches(':').to_owned()])))
}

/// The statements that these lines, from 1, are part of; without those that do not exist or are
/// empty.
fn statements(text: &str, lines: &[u32], is_python: bool) -> BTreeMap<u32, String> {
    let mut found = BTreeMap::new();
    let (mut state, mut first, mut parts) = (State::default(), 1, Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        if state.is_between_statements() {
            (first, parts) = (number, Vec::new());
        }
        let code;
        (state, code) = scan(state, line, is_python);
        parts.push(code);
        if state.is_between_statements() || parts.len() >= 4 * MOST_LINES {
            found.extend(quotes(&parts, first, lines));
            state = State::default();
        }
    }
    if !state.is_between_statements() {
        found.extend(quotes(&parts, first, lines));
    }
    found
}

/// What stands at those of the lines that are in a statement, whose parts begin at `first`.
fn quotes(parts: &[String], first: u32, lines: &[u32]) -> Vec<(u32, String)> {
    let within = first..first.saturating_add(parts.len() as u32);
    let inside = lines.iter().filter(|line| within.contains(*line));
    let quote = |&line: &u32| {
        // What is long begins at the line itself.
        let at = if parts.len() > MOST_LINES { (line - first) as usize } else { 0 };
        (line, joined(&parts[at..parts.len().min(at + MOST_LINES)]))
    };
    inside.map(quote).filter(|(_, quote)| !quote.is_empty()).collect()
}

/// Scans a line. Returns the state behind it, and the line without its comment.
fn scan(before: State, line: &str, is_python: bool) -> (State, String) {
    let (mut state, mut code) = (State { continues: false, ..before }, String::new());
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let ends = match state.inside {
            Some('*') => rest.starts_with("*/").then_some(2),
            Some(mark) => triple(rest, mark).then_some(3),
            None => None,
        };
        let taken = match (state.inside, ends) {
            (Some(_), Some(length)) => {
                state.inside = None;
                length
            }
            (Some(_), None) => c.len_utf8(),
            (None, _) if is_comment(rest, is_python) => break,
            (None, _) if !is_python && rest.starts_with("/*") => {
                state.inside = Some('*');
                2
            }
            (None, _) if is_python && (triple(rest, '"') || triple(rest, '\'')) => {
                state.inside = Some(c);
                3
            }
            (None, _) if c == '"' || (c == '\'' && is_python) => string(rest, c),
            (None, _) => {
                match c {
                    '(' | '[' => state.depth += 1,
                    ')' | ']' => state.depth = state.depth.saturating_sub(1),
                    '{' if is_python => state.depth += 1,
                    '}' if is_python => state.depth = state.depth.saturating_sub(1),
                    _ => {}
                }
                c.len_utf8()
            }
        };
        code.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    state.continues = state.inside.is_none() && code.ends_with('\\');
    (state, code.trim_end_matches('\\').trim().to_owned())
}

fn is_comment(rest: &str, is_python: bool) -> bool {
    if is_python { rest.starts_with('#') } else { rest.starts_with("//") }
}

fn triple(rest: &str, mark: char) -> bool {
    rest.chars().take(3).eq([mark; 3])
}

/// Bytes of the string that begins here, to its end or that of the line.
fn string(rest: &str, mark: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if c == mark => return at + c.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

/// Parts of a statement on one line, shortened.
fn joined(parts: &[String]) -> String {
    let mut text = String::new();
    for part in parts.iter().filter(|part| !part.is_empty()) {
        let is_tight =
            text.is_empty() || text.ends_with(['(', '[', '{']) || part.starts_with([')', ']', '}']);
        text.push_str(if is_tight { "" } else { " " });
        text.extend(part.chars().map(|c| if c.is_control() { ' ' } else { c }));
    }
    match text.char_indices().nth(COLUMNS) {
        Some(_) => text.chars().take(COLUMNS - 1).chain(['…']).collect(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::{COLUMNS, statements};

    fn at(text: &str, line: u32, is_python: bool) -> Option<String> {
        statements(text, &[line], is_python).remove(&line)
    }

    #[test]
    fn a_statement_over_several_lines_is_one() {
        let text = "def f(x):\n    # scaled (\n    y = scale(\n        x,  # rows\n        'a)',\n    )\n    return y\n";
        for line in 3..=6 {
            assert_eq!(at(text, line, true).as_deref(), Some("y = scale(x, 'a)',)"), "{line}");
        }
        assert_eq!(at(text, 7, true).as_deref(), Some("return y"));
        assert_eq!(at(text, 2, true), None);
        assert_eq!(at(text, 8, true), None);
        assert_eq!(at("a = b \\\n  + c\n", 2, true).as_deref(), Some("a = b + c"));
        let text = "/* a ( */ f<<<1, 2>>>(x, // y\n  z);\ng();";
        assert_eq!(at(text, 2, false).as_deref(), Some("/* a ( */ f<<<1, 2>>>(x, z);"));
        assert_eq!(at(text, 3, false).as_deref(), Some("g();"));
    }

    #[test]
    fn the_innermost_loop_of_the_same_function_is_around_a_line() {
        let text = "for epoch in range(9):\n    def step(rows):\n        for i in range(len(rows)):  # all\n            if rows[i]:\n\
                    \n                total = add(total,\n                    rows[i])\n        return total\n    step(x)\n";
        let around = |line| super::loops(text, &[line]).remove(&line);
        let inner = Some((3, "for i in range(len(rows))".to_owned()));
        assert_eq!((around(4), around(6), around(7)), (inner.clone(), inner.clone(), inner));
        assert_eq!((around(8), around(3)), (None, None), "another function's loop is not around it");
        assert_eq!(around(9), Some((1, "for epoch in range(9)".to_owned())));
        assert_eq!(around(1), None);
    }

    #[test]
    fn functions_have_their_statements() {
        let text = "x = 1\ndef outer(a):\n    \"\"\"Words.\n    sort(a)\"\"\"\n    def inner(\n        b):\n        # sort\n\
                    \n        return sort(\n            b)\n    return inner(a)\nclass C:\n    async def wait(self): pass\ny = 2\n";
        let found = super::functions(text);
        let of =
            |name: &str| found[name].iter().map(|(line, text)| (*line, text.as_str())).collect::<Vec<_>>();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["", "inner", "outer"]);
        assert_eq!(of(""), [(1, "x = 1"), (12, "class C:"), (14, "y = 2")]);
        assert_eq!(of("inner"), [(9, "return sort(b)")]);
        assert_eq!(of("outer"), [(11, "return inner(a)")]);
    }

    #[test]
    fn strings_over_several_lines_hide_brackets() {
        let text = "def f():\n    \"\"\"Words (of\n    several [lines.\"\"\"\n    return 1\n";
        assert_eq!(at(text, 4, true).as_deref(), Some("return 1"));
    }

    #[test]
    fn what_is_long_or_never_ends_is_cut() {
        let long = format!("x = {}\n", "a + ".repeat(80));
        let quote = at(&long, 1, true).expect("a quote");
        assert_eq!((quote.chars().count(), quote.ends_with('…')), (COLUMNS, true));
        let open = format!("f(\n{}", "x,\n".repeat(500));
        assert!(at(&open, 400, true).expect("a quote").starts_with("x,"));
        assert_eq!(at("x\u{1b}[31m = 1", 1, true).as_deref(), Some("x [31m = 1"));
    }
}
