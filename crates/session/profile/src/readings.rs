//! What the source of Python around a line says in general: a call whose arguments do not change in
//! the loop around it, a search in a list, a result that nothing uses.
//!
//! Names are followed within one file, by their text. A name counts as changed if anything in the
//! loop may change it: an assignment, a method that is called for its effect, a call that gets it
//! and returns nothing that is used. Calls that draw, read or wait give another result each time,
//! and are never told. Invariants: any text gives an answer, in time that is bounded by its length
//! and [`MOST_LINES`].

use crate::source_line::{Written, written};
use std::collections::BTreeSet;

/// Lines of a text that are read.
const MOST_LINES: usize = 5_000;
/// Characters of a quoted call.
const COLUMNS: usize = 60;

/// What is known of a line by reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// A call in the statement whose arguments do not change in the loop around it.
    Unchanged {
        /// The call.
        call: String,
        /// The loop's line.
        around: u32,
    },
    /// A value is looked for in a list, one element after the other.
    ListSearch {
        /// The list's name.
        list: String,
        /// The line that makes the list.
        made: u32,
    },
    /// A result that no other statement of the function uses.
    Unused {
        /// The result's name.
        name: String,
    },
}

/// Parts of names of functions whose results differ from call to call, or that are called for what
/// they do.
const EFFECTS: [&str; 58] = [
    "rand",
    "normal",
    "uniform",
    "poisson",
    "binomial",
    "choice",
    "shuffle",
    "permut",
    "sample",
    "draw",
    "next",
    "get",
    "pop",
    "read",
    "recv",
    "accept",
    "time",
    "perf_counter",
    "now",
    "item",
    "step",
    "backward",
    "zero_grad",
    "wait",
    "sync",
    "record",
    "print",
    "write",
    "append",
    "put",
    "send",
    "sleep",
    "event",
    "stream",
    "seed",
    "push",
    "update",
    "advance",
    "train",
    "fit",
    "grad",
    "loss",
    "log",
    "save",
    "close",
    "open",
    "fetch",
    "poll",
    "launch",
    "compile",
    "noise",
    "key",
    "split",
    "replay",
    "autocast",
    "tqdm",
    "warn",
    "run",
];
/// Functions that cost nothing worth a word.
const CHEAP: [&str; 33] = [
    "len",
    "range",
    "int",
    "float",
    "str",
    "bool",
    "min",
    "max",
    "abs",
    "zip",
    "enumerate",
    "isinstance",
    "view",
    "reshape",
    "size",
    "dim",
    "type",
    "list",
    "tuple",
    "dict",
    "set",
    "super",
    "getattr",
    "hasattr",
    "slice",
    "round",
    "unsqueeze",
    "squeeze",
    "expand",
    "detach",
    "transpose",
    "permute",
    "items",
];
/// Parts of names of objects that have a state of their own.
const STATEFUL: [&str; 17] = [
    "model", "net", "encoder", "decoder", "optim", "loader", "rng", "gen", "queue", "env", "sched", "scaler",
    "iter", "reader", "writer", "policy", "agent",
];
const KEYWORDS: [&str; 24] = [
    "and", "or", "not", "in", "is", "if", "else", "for", "lambda", "None", "True", "False", "await", "async",
    "return", "yield", "while", "del", "with", "as", "assert", "raise", "from", "import",
];

/// The readings of these lines, from 1.
pub(crate) fn of(text: &str, lines: &[u32]) -> Vec<(u32, Reading)> {
    let all = written(text, MOST_LINES);
    let of_line = |&line: &u32| {
        let at = all.iter().position(|one| (one.line..=one.end).contains(&line))?;
        Some((line, at))
    };
    let known = lines.iter().filter_map(of_line);
    known
        .flat_map(|(line, at)| of_statement(&all, at).into_iter().map(move |reading| (line, reading)))
        .collect()
}

fn of_statement(all: &[Written], at: usize) -> Vec<Reading> {
    [unchanged(all, at), list_search(all, at), unused(all, at)].into_iter().flatten().collect()
}

/// A call of the statement with arguments that the loop around it does not change.
fn unchanged(all: &[Written], at: usize) -> Option<Reading> {
    let around = loop_around(all, at)?;
    let body = body(all, around);
    let mut changed = BTreeSet::new();
    targets_of_loop(&all[around].text).for_each(|name| insert(&mut changed, name));
    for (place, one) in all.iter().enumerate().take(body.end).skip(body.start) {
        changes(&one.text, place == at, &mut changed);
    }
    let statement = &all[at].text;
    if statement.starts_with(['@', '#'])
        || ["def ", "class ", "import ", "from "].iter().any(|word| statement.starts_with(word))
    {
        return None;
    }
    let value = assignment(statement).map_or(&statement[..], |(_, value)| value);
    let found = calls(value).into_iter().find(|call| is_told(all, call, &changed))?;
    Some(Reading::Unchanged { call: shortened(found.text), around: all[around].line })
}

/// A call in an expression.
struct Call<'t> {
    /// All of it.
    text: &'t str,
    /// The function, with what it is a part of.
    function: &'t str,
    arguments: &'t str,
}

/// Whether a call does the same in each round of the loop, as far as names tell.
fn is_told(all: &[Written], call: &Call<'_>, changed: &BTreeSet<String>) -> bool {
    let (root, last) = (first_name(call.function), call.function.rsplit('.').next().unwrap_or_default());
    let is_in = |words: &[&str], name: &str| {
        let name = name.to_lowercase();
        words.iter().any(|word| name.contains(word))
    };
    let is_method = call.function.contains('.');
    let is_module = |name: &str| all.iter().any(|one| imports(&one.text, name));
    // A function of a module, or a method of a name that does not change.
    let is_known = match is_method {
        true => {
            is_module(root)
                || !(root == "self" || is_in(&STATEFUL, root) || is_changed(changed, call.function))
        }
        false => is_module(root),
    };
    let names: Vec<&str> = names(call.arguments).collect();
    let has_data = is_method && !is_module(root) || !call.arguments.trim().is_empty();
    let depends_on_self = names.iter().any(|name| name.starts_with("self.") || *name == "self");
    is_known
        && has_data
        && !depends_on_self
        && !is_in(&EFFECTS, last)
        && !CHEAP.contains(&last)
        && !calls(call.arguments).iter().any(|inner| {
            let last = inner.function.rsplit('.').next().unwrap_or_default();
            is_in(&EFFECTS, last)
                || !inner.function.contains('.') && !CHEAP.contains(&last) && !is_module(last)
        })
        && names.iter().all(|name| !is_in(&STATEFUL, name) && !is_changed(changed, name))
}

/// A search in a name that is made as a list.
fn list_search(all: &[Written], at: usize) -> Option<Reading> {
    let statement = &all[at].text;
    let searched = |list: &str| {
        let is_in = contains_word(statement, &format!(" in {list}"))
            && !statement.starts_with("for ")
            && !contains_word(statement, &format!("for {}", first_before(statement, list)));
        is_in
            || ["index", "count", "remove"]
                .iter()
                .any(|method| statement.contains(&format!("{list}.{method}(")))
    };
    let made = all.iter().find(|one| {
        let Some((target, value)) = assignment(&one.text) else { return false };
        let is_list = value.starts_with('[') || value.starts_with("list(") || value.starts_with("sorted(");
        is_list && is_name(target) && searched(target)
    })?;
    let (list, _) = assignment(&made.text)?;
    // A name that is also a set or a dictionary somewhere is not known.
    let is_other = |one: &Written| {
        assignment(&one.text).is_some_and(|(target, value)| {
            target == list
                && (value.starts_with('{') || value.starts_with("set(") || value.starts_with("dict"))
        })
    };
    (!all.iter().any(is_other)).then(|| Reading::ListSearch { list: list.to_owned(), made: made.line })
}

/// The loop variable in front of ` in LIST`, if the statement has a comprehension over it.
fn first_before<'t>(statement: &'t str, list: &str) -> &'t str {
    let before = statement.split(&format!(" in {list}")).next().unwrap_or_default();
    before.rsplit([' ', '(', '[']).next().unwrap_or_default()
}

/// A result to which no other statement of the function refers.
fn unused(all: &[Written], at: usize) -> Option<Reading> {
    let (target, value) = assignment(&all[at].text)?;
    let is_call = value.contains('(');
    if !is_name(target) || !is_call || target.starts_with('_') {
        return None;
    }
    let is_used = |(place, one): (usize, &Written)| {
        place != at && contains_word(&one.text, target) || place == at && contains_word(value, target)
    };
    (!all.iter().enumerate().any(is_used)).then(|| Reading::Unused { name: target.to_owned() })
}

/// The innermost loop around a statement in its function.
fn loop_around(all: &[Written], at: usize) -> Option<usize> {
    let mut indent = all[at].indent;
    for place in (0..at).rev() {
        let one = &all[place];
        if one.indent >= indent {
            continue;
        }
        indent = one.indent;
        let text = one.text.strip_prefix("async ").unwrap_or(&one.text);
        if text.starts_with("for ") || text.starts_with("while ") {
            return Some(place);
        }
        if text.starts_with("def ") || text.starts_with("class ") {
            return None;
        }
    }
    None
}

/// The statements of a loop.
fn body(all: &[Written], around: usize) -> std::ops::Range<usize> {
    let rest = &all[around + 1..];
    let count = rest.iter().take_while(|one| one.indent > all[around].indent).count();
    around + 1..around + 1 + count
}

/// Names that a loop gives a value in each round.
fn targets_of_loop(text: &str) -> impl Iterator<Item = &str> {
    let header = text.strip_prefix("async ").unwrap_or(text);
    let targets = header.strip_prefix("for ").and_then(|rest| rest.split(" in ").next());
    names(targets.unwrap_or_default())
}

/// Adds what a statement may change. Of the statement that is looked at, what it assigns counts
/// alone.
fn changes(text: &str, is_own: bool, changed: &mut BTreeSet<String>) {
    targets_of_loop(text).for_each(|name| insert(changed, name));
    if let Some((_, name)) = text.strip_prefix("with ").and_then(|rest| rest.rsplit_once(" as ")) {
        names(name).for_each(|name| insert(changed, name));
    }
    for (at, _) in text.match_indices(":=") {
        let before = text[..at].trim_end();
        insert(changed, before.rsplit(|c: char| !is_of_name(c)).next().unwrap_or_default());
    }
    for (at, _) in text.match_indices("out=") {
        names(&text[at + 4..]).take(1).for_each(|name| insert(changed, name));
    }
    match assignment(text) {
        Some((target, _)) => split_targets(target).for_each(|target| insert(changed, target)),
        // A call for its effect: on its object and on what it gets.
        None if !is_own
            && !["for ", "while ", "if ", "elif ", "return ", "assert "]
                .iter()
                .any(|word| text.starts_with(word)) =>
        {
            names(text).for_each(|name| insert(changed, name));
        }
        None => {}
    }
}

fn insert(changed: &mut BTreeSet<String>, name: &str) {
    if !name.is_empty() {
        changed.insert(name.to_owned());
    }
}

/// Whether a name, or what it is a part of, is changed.
fn is_changed(changed: &BTreeSet<String>, name: &str) -> bool {
    let root = first_name(name);
    changed.contains(name)
        || changed.contains(root)
        || changed.iter().any(|other| first_name(other) == root && root != "self")
}

/// The two sides of an assignment; of `x += y` also.
fn assignment(text: &str) -> Option<(&str, &str)> {
    let (mut depth, mut quote) = (0usize, None);
    let bytes = text.as_bytes();
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(mark), _) if c == mark => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
            (None, '=') if depth == 0 => {
                let before = at.checked_sub(1).map_or(b' ', |before| bytes[before]);
                if bytes.get(at + 1) == Some(&b'=') || matches!(before, b'=' | b'!' | b'<' | b'>' | b':') {
                    return None;
                }
                let target =
                    text[..at].trim_end_matches(['+', '-', '*', '/', '%', '&', '|', '^', '@']).trim();
                let target = target.split(": ").next().unwrap_or(target).trim();
                return Some((target, text[at + 1..].trim()));
            }
            _ => {}
        }
    }
    None
}

/// The names of targets: `a, (b, c.d), e[i]` are `a`, `b`, `c.d` and `e`.
fn split_targets(target: &str) -> impl Iterator<Item = &str> {
    target.split(',').map(|one| {
        let one = one.trim().trim_start_matches(['(', '[', '*']).trim_end_matches([')', ']']);
        one.split('[').next().unwrap_or_default().trim()
    })
}

/// The calls of an expression, the outer ones first.
fn calls(text: &str) -> Vec<Call<'_>> {
    let mut found = Vec::new();
    for (open, _) in text.match_indices('(') {
        let before = &text[..open];
        let start = before
            .rfind(|c: char| !is_of_name(c) && c != '.')
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        let function = &before[start..];
        let Some(length) = closing(&text[open..]) else { continue };
        if function.starts_with(|c: char| c.is_alphabetic() || c == '_') && !KEYWORDS.contains(&function) {
            let arguments = &text[open + 1..open + length];
            found.push(Call { text: &text[start..=open + length], function, arguments });
        }
    }
    found
}

/// The place of the bracket that closes the first one.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0usize, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(mark), _) if c == mark => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// The names of an expression with their parts (`self.table`), without those of arguments
/// (`dim=1`), keywords, and text.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let mut found = Vec::new();
    let (mut start, mut quote) = (None, None);
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        if let Some(mark) = quote {
            if c == mark {
                quote = None;
            }
            continue;
        }
        if is_of_name(c) || c == '.' && start.is_some() {
            start.get_or_insert(at);
            continue;
        }
        if let Some(name) = start.take().map(|start: usize| &text[start..at]) {
            let rest = text[at..].trim_start();
            let is_argument = rest.starts_with('=') && !rest.starts_with("==");
            let is_number = name.starts_with(|c: char| c.is_ascii_digit());
            if !is_argument && !is_number && !KEYWORDS.contains(&name) {
                found.push(name.trim_end_matches('.'));
            }
        }
        if c == '"' || c == '\'' {
            quote = Some(c);
        }
    }
    found.into_iter()
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_of_name)
}

fn first_name(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// Whether a statement imports this name.
fn imports(text: &str, name: &str) -> bool {
    let Some(rest) =
        text.strip_prefix("import ").or_else(|| Some(text.strip_prefix("from ")?.split_once(" import ")?.1))
    else {
        return false;
    };
    rest.split(',').any(|one| {
        let one = one.trim().trim_matches(['(', ')']);
        let own = one.rsplit_once(" as ").map_or(one, |(_, own)| own);
        first_name(own.trim()) == name
    })
}

/// Whether these words occur whole.
fn contains_word(text: &str, words: &str) -> bool {
    text.match_indices(words).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + words.len()..].chars().next();
        let is_part = |c: Option<char>| c.is_some_and(is_of_name);
        !(is_part(after) || words.starts_with(is_of_name) && (is_part(before) || before == Some('.')))
    })
}

fn shortened(call: &str) -> String {
    match call.char_indices().nth(COLUMNS) {
        Some(_) => call.chars().take(COLUMNS - 1).chain(['…']).collect(),
        None => call.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn readings(text: &str, line: u32) -> Vec<Reading> {
        of(text, &[line]).into_iter().map(|(_, reading)| reading).collect()
    }

    fn unchanged(call: &str, around: u32) -> Vec<Reading> {
        vec![Reading::Unchanged { call: call.into(), around }]
    }

    #[test]
    fn a_call_whose_arguments_stay_the_same_is_told() {
        let text = "import scipy.spatial as spatial\nimport numpy as np\npoints = make()\nfor hour in hours:\n    tree = spatial.Delaunay(points)\n    use(tree, hour)\n";
        assert_eq!(readings(text, 5), unchanged("spatial.Delaunay(points)", 4));
        for (changing, what) in [
            ("    points = shift(points)\n", "an assignment"),
            ("    points[hour] = 0\n", "an element"),
            ("    points.sort()\n", "a method for its effect"),
            ("    move(points)\n", "a call for its effect"),
            ("    np.add(points, 1, out=points)\n", "an argument for the result"),
        ] {
            assert_eq!(readings(&format!("{text}{changing}"), 5), [], "{what}");
        }
        let drawn = text.replace("spatial.Delaunay(points)", "np.random.normal(points)");
        assert_eq!(readings(&drawn, 5), []);
        let stated = text.replace("spatial.Delaunay(points)", "model(points)");
        assert_eq!(readings(&stated, 5), []);
        // A part of the statement.
        let part =
            text.replace("tree = spatial.Delaunay(points)", "y = hour @ np.linalg.inv(points) # again");
        assert_eq!(readings(&format!("{part}    use(y)\n"), 5), unchanged("np.linalg.inv(points)", 4));
    }

    #[test]
    fn a_search_in_a_list_is_told_and_a_loop_over_it_is_not() {
        let text = |statement: &str| format!("seen = []\nwhile True:\n    {statement}\n    seen.append(x)\n");
        let found = vec![Reading::ListSearch { list: "seen".into(), made: 1 }];
        assert_eq!(readings(&text("if plan in seen:"), 3), found);
        assert_eq!(readings(&text("at = seen.index(plan); use(at)"), 3), found);
        assert_eq!(readings(&text("total = sum(one for one in seen); use(total)"), 3), []);
        assert_eq!(readings(&text("for one in seen:"), 3), []);
        assert_eq!(readings(&text("if plan in seen:").replace("[]", "set()"), 3), []);
    }

    #[test]
    fn a_result_that_nothing_uses_is_told() {
        let text = "def step(x):\n    order = x.argsort()\n    return x\n";
        assert_eq!(readings(text, 2), [Reading::Unused { name: "order".into() }]);
        assert_eq!(readings(&text.replace("return x", "return order"), 2), []);
    }

    proptest! {
        #[test]
        fn any_text_has_an_answer(text in "[ a-z=(),.\\[\\]:'\"\n#é]{0,200}", line in 0..20u32) {
            let _ = of(&text, &[line]);
        }
    }
}
