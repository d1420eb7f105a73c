//! The parts of a C++ name: the functions, classes and lambdas that it passes through, each with
//! its template arguments and parameters, still as text.
//!
//! One pass over the text finds them; whoever is interested in an argument reads its outline in
//! turn. Brackets that do not match give odd parts, never a panic.

/// One step of a qualified name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part<'a> {
    /// Without arguments; `{lambda` for a lambda.
    pub name: &'a str,
    /// Between its angle brackets.
    pub arguments: Option<&'a str>,
    /// Between its parentheses.
    pub parameters: Option<&'a str>,
}

impl<'a> Part<'a> {
    /// Whether it is a lambda.
    pub fn is_lambda(&self) -> bool {
        self.name.starts_with("{lambda") || self.name.starts_with("{unnamed")
    }

    /// Its template arguments.
    pub fn arguments(&self) -> Vec<&'a str> {
        self.arguments.map_or_else(Vec::new, list)
    }
}

/// Returns the length of an operator's name at the start of `text`, so that its angle brackets are
/// not taken for brackets of arguments.
fn operator_name(text: &str) -> usize {
    const NAMES: [&str; 11] = ["()", "<<=", ">>=", "<=>", "<<", ">>", "<=", ">=", "->", "<", ">"];
    NAMES.iter().find(|name| text.starts_with(**name)).map_or(0, |name| name.len())
}

/// Bytes of `text` outside of all brackets, with their positions. Names of operators and arrows are
/// skipped.
fn outside(text: &str, mut visit: impl FnMut(usize, u8) -> bool) {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0usize);
    while at < bytes.len() {
        let byte = bytes[at];
        if byte == b'o' && text[at..].starts_with("operator") {
            at += "operator".len();
            at += operator_name(&text[at..]);
            continue;
        }
        match byte {
            b'<' | b'(' | b'{' | b'[' => {
                if depth == 0 && !visit(at, byte) {
                    return;
                }
                depth += 1;
            }
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            b'>' | b')' | b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 && !visit(at, byte) {
                    return;
                }
            }
            _ if depth == 0 && !visit(at, byte) => return,
            _ => {}
        }
        at += text[at..].chars().next().map_or(1, char::len_utf8);
    }
}

/// The parts of a qualified name, the outermost first. A return type and trailing qualifiers are
/// left out.
pub(crate) fn path(text: &str) -> Vec<Part<'_>> {
    let mut cuts = Vec::new();
    let mut start = 0;
    outside(text, |at, byte| {
        if byte == b':' && at >= start && text[at..].starts_with("::") {
            cuts.push((start, at));
            start = at + 2;
        } else if byte == b' ' && is_return_type(&text[start..at]) {
            // Of a function template: whatever was read so far belongs to the type.
            cuts.clear();
            start = at + 1;
        }
        true
    });
    cuts.push((start, text.len()));
    cuts.into_iter().map(|(from, to)| part(&text[from..to])).filter(|part| !part.name.is_empty()).collect()
}

/// Whether what stands before a blank is a type, and not a function whose qualifiers follow
/// (`f(int) const`).
fn is_return_type(before: &str) -> bool {
    !before.is_empty() && !before.ends_with(')') && !before.ends_with("operator")
}

fn part(text: &str) -> Part<'_> {
    let text = text.trim();
    if text.starts_with('{') {
        let parameters =
            text.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')')).map(|(inside, _)| inside);
        return Part { name: text, arguments: None, parameters };
    }
    let mut found = Part { name: text, ..Part::default() };
    let (mut opened, mut named) = (0, false);
    outside(text, |at, byte| {
        match byte {
            b'<' | b'(' => {
                if !named {
                    found.name = text[..at].trim();
                    named = true;
                }
                opened = at + 1;
            }
            b'>' if found.arguments.is_none() && opened > 0 => found.arguments = text.get(opened..at),
            b')' if opened > 0 => {
                found.parameters = text.get(opened..at);
                return false;
            }
            _ => {}
        }
        true
    });
    found
}

/// The entries of a list at its commas.
pub(crate) fn list(text: &str) -> Vec<&str> {
    let mut entries = Vec::new();
    let mut start = 0;
    outside(text, |at, byte| {
        if byte == b',' {
            entries.push(text[start..at].trim());
            start = at + 1;
        }
        true
    });
    let last = text[start..].trim();
    if !last.is_empty() || !entries.is_empty() {
        entries.push(last);
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<&str> {
        path(text).into_iter().map(|part| part.name).collect()
    }

    #[test]
    fn names_have_parts() {
        let parts = path("void at::native::kernel<4, F<int, 2>, std::array<char*, 3>>(int, F<int, 2>)");
        assert_eq!(parts.iter().map(|part| part.name).collect::<Vec<_>>(), ["at", "native", "kernel"]);
        assert_eq!(parts[2].arguments(), ["4", "F<int, 2>", "std::array<char*, 3>"]);
        assert_eq!(parts[2].parameters, Some("int, F<int, 2>"));
        assert_eq!(names("ns::Op<int>::operator()(int) const"), ["ns", "Op", "operator()"]);
        assert_eq!(names("a::operator<(b::c const&)"), ["a", "operator<"]);
    }

    #[test]
    fn lambdas_are_parts_with_parameters() {
        let text =
            "f(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda(c10::Half, float)#1}";
        let parts = path(text);
        assert_eq!(parts[0].name, "f");
        assert!(parts[1].is_lambda() && parts[3].is_lambda());
        assert_eq!(parts[3].parameters, Some("c10::Half, float"));
    }

    #[test]
    fn brackets_that_do_not_match_are_read_somehow() {
        for text in ["<", ">", "a<b", "a>b(", ")(", "{", "operator", "operator<", "::", "a::", "é<(}>é"] {
            let _ = path(text);
            let _ = list(text);
        }
        assert_eq!(list(""), [""; 0]);
        assert_eq!(list("a, b<c, d>, "), ["a", "b<c, d>", ""]);
    }
}
