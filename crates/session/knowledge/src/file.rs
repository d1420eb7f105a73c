//! Files of causes: TOML, checked entry by entry.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use apex_kernel_names::{DataType, Operation, Owner};
use serde::Deserialize;
use toml::Spanned;

use crate::cause::{Cause, Claims, Example, Remedies, Saves};
use crate::framework::Framework;
use crate::pattern::{FunctionPattern, Pattern};

/// A file that is not what it has to be.
#[derive(Debug, thiserror::Error)]
#[error("{file}:{line}: {what}")]
pub struct Error {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The fault, and the remedy.
    pub what: String,
}

/// Key of the remedy for any program.
const ANY: &str = "any";
/// The least share of the GPU time that kernels of a cause have, where it does not say so.
const LEAST: f64 = 0.02;
/// The least number of calls per iteration, where a cause does not say so.
const EACH_ITERATION: f64 = 0.9;

/// The content of a file.
#[derive(Debug, Default)]
pub(crate) struct File {
    /// Causes, in their order.
    pub causes: Vec<Cause>,
    /// Remedies of rules, by the rule's name.
    pub of_rules: BTreeMap<String, Remedies>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    cause: Vec<Spanned<Entry>>,
    #[serde(default)]
    rules: BTreeMap<String, Spanned<BTreeMap<String, String>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    title: String,
    meaning: String,
    remedy: BTreeMap<String, String>,
    #[serde(default)]
    saves: Option<[f64; 3]>,
    #[serde(default)]
    claims: Option<String>,
    #[serde(default, rename = "with-kernels")]
    with_kernels: bool,
    check: String,
    source: String,
    #[serde(default)]
    priority: i64,
    #[serde(default)]
    explains: Vec<String>,
    #[serde(rename = "match")]
    matches: Signals,
    example: Shown,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct Signals {
    kernels: Vec<String>,
    owners: Vec<Owner>,
    operations: Vec<Operation>,
    types: Vec<DataType>,
    sequence: Vec<String>,
    absent: Vec<String>,
    least: Option<f64>,
    calls: Vec<String>,
    each_iteration: Option<f64>,
    functions: Vec<String>,
    host: Vec<String>,
    both: bool,
    launches: bool,
    waits: Vec<String>,
    loops: Vec<String>,
    lines: Vec<String>,
    host_lines: Vec<String>,
    wait_lines: Vec<String>,
    except: Vec<String>,
    unless: Vec<String>,
    makers: Vec<String>,
    variable: Option<String>,
    values: Vec<String>,
    blocking_launches: bool,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct Shown {
    kernel: Option<String>,
    kernels: Vec<String>,
    looped: Option<String>,
    line: Option<String>,
    host_line: Option<String>,
    wait_line: Option<String>,
    host: Option<String>,
    call: Option<String>,
    function: Option<String>,
    value: Option<String>,
}

/// The contents of a file.
pub(crate) fn parse(path: &Path, text: &str) -> Result<File, Error> {
    let at = |offset: usize, what: String| {
        let before = text.get(..offset).unwrap_or(text);
        Error { file: path.to_owned(), line: before.matches('\n').count() + 1, what }
    };
    let document: Document = toml::from_str(text)
        .map_err(|error| at(error.span().map_or(0, |span| span.start), error.message().to_owned()))?;
    let mut causes: Vec<Cause> = Vec::new();
    for entry in document.cause {
        let start = entry.span().start;
        let entry = entry.into_inner();
        let id = entry.id.clone();
        let problem = |what: String| at(start, format!("cause `{id}`: {what}"));
        let line = at(start, String::new()).line;
        let cause = cause(entry, path, line).map_err(problem)?;
        if let Some(other) = causes.iter().find(|other| other.id == cause.id) {
            return Err(twice(&cause, other));
        }
        causes.push(cause);
    }
    let mut of_rules = BTreeMap::new();
    for (name, entry) in document.rules {
        let start = entry.span().start;
        let problem = |what: String| at(start, format!("rule `{name}`: {what}"));
        of_rules.insert(name.clone(), remedies(entry.into_inner()).map_err(problem)?);
    }
    Ok(File { causes, of_rules })
}

/// The error of an identifier that two causes have.
pub(crate) fn twice(cause: &Cause, other: &Cause) -> Error {
    let what = format!(
        "cause `{}` is defined in {}:{} already; give one of them another id",
        cause.id,
        other.file.display(),
        other.line
    );
    Error { file: cause.file.clone(), line: cause.line, what }
}

/// Checks the texts of an entry.
fn check_texts(entry: &Entry) -> Result<(), String> {
    let is_id = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if entry.id.is_empty() || !entry.id.chars().all(is_id) {
        return Err("the id consists of lowercase letters, digits and `-`".into());
    }
    let texts = [("title", &entry.title), ("meaning", &entry.meaning), ("check", &entry.check)];
    if let Some((key, _)) = texts.iter().find(|(_, text)| text.trim().is_empty()) {
        return Err(format!("`{key}` is empty; write a sentence"));
    }
    if !entry.source.starts_with("https://") {
        return Err("`source` is the address of public documentation, from https:// on".into());
    }
    Ok(())
}

fn cause(entry: Entry, path: &Path, line: usize) -> Result<Cause, String> {
    check_texts(&entry)?;
    let remedies = remedies(entry.remedy)?;
    let claims = claims(entry.claims.as_deref())?;
    let of = entry.matches;
    if entry.with_kernels && of.host.is_empty() {
        return Err("`with-kernels` needs `host`: the functions whose kernels disappear".into());
    }
    let is_of_waits = !(of.waits.is_empty() && of.loops.is_empty() && of.wait_lines.is_empty());
    let is_known = claims != Claims::Unknown && !is_of_waits;
    let saves = saves(entry.saves, is_known)?;
    let cause = Cause {
        id: entry.id,
        title: entry.title,
        meaning: entry.meaning,
        remedies,
        saves,
        claims,
        with_kernels: entry.with_kernels,
        check: entry.check,
        source: entry.source,
        priority: entry.priority,
        explains: entry.explains,
        kernels: patterns(of.kernels),
        owners: of.owners,
        operations: of.operations,
        types: of.types,
        sequence: patterns(of.sequence),
        absent: patterns(of.absent),
        least: of.least.unwrap_or(LEAST),
        calls: patterns(of.calls),
        each_iteration: of.each_iteration.unwrap_or(EACH_ITERATION),
        functions: of.functions.iter().map(|text| FunctionPattern::new(text)).collect(),
        host: of.host.iter().map(|text| FunctionPattern::new(text)).collect(),
        both: of.both,
        launches: of.launches,
        waits: of.waits.iter().map(|text| FunctionPattern::new(text)).collect(),
        loops: patterns(of.loops),
        lines: patterns(of.lines),
        host_lines: patterns(of.host_lines),
        wait_lines: patterns(of.wait_lines),
        except: patterns(of.except),
        unless: patterns(of.unless),
        makers: patterns(of.makers),
        variable: of.variable,
        values: patterns(of.values),
        blocking_launches: of.blocking_launches,
        example: example(entry.example),
        file: path.to_owned(),
        line,
    };
    check_signals(&cause)?;
    match cause.matches(&cause.example, cause.variable.as_deref()) {
        true => Ok(cause),
        false => Err("its `match` does not match its `example`; correct one of them".into()),
    }
}

fn check_signals(cause: &Cause) -> Result<(), String> {
    let of_kernels = !cause.kernels.is_empty();
    let of_calls = !cause.calls.is_empty() || (!of_kernels && !cause.functions.is_empty());
    let of_variable = cause.variable.is_some();
    // Calls may have functions of the host beside them, which show the same cause.
    let of_host = !cause.host.is_empty() && !of_calls;
    let of_waits = !cause.waits.is_empty();
    if cause.both && (cause.host.is_empty() || !of_calls) {
        return Err("`both` is for a cause with `calls` and `host`".into());
    }
    if cause.launches && cause.host.is_empty() {
        return Err("`launches` is for a cause with `host`".into());
    }
    let kinds = [
        of_kernels && !of_variable,
        of_calls,
        of_host,
        of_waits,
        !cause.loops.is_empty(),
        !cause.lines.is_empty(),
        !cause.host_lines.is_empty(),
        !cause.wait_lines.is_empty(),
        !cause.makers.is_empty(),
        of_variable,
    ];
    if kinds.iter().filter(|kind| **kind).count() != 1 {
        return Err(
            "`match` has either kernels, or calls, or functions, or host, or waits, or loops, or lines, or \
             host-lines, or wait-lines, or makers, or a variable"
                .into(),
        );
    }
    let of_lines = [&cause.lines, &cause.host_lines, &cause.wait_lines];
    if !cause.except.is_empty() && of_lines.iter().all(|lines| lines.is_empty()) {
        return Err("`except` is for a cause with lines, host-lines or wait-lines".into());
    }
    if !cause.unless.is_empty() && cause.lines.is_empty() {
        return Err("`unless` is for a cause with lines".into());
    }
    let describes_kernels = !cause.operations.is_empty() && cause.lines.is_empty()
        || !cause.owners.is_empty()
        || !cause.types.is_empty()
        || !cause.sequence.is_empty();
    if !of_kernels && describes_kernels {
        return Err("owners, operations, types and sequence describe `kernels`; add kernels = [\"*\"]".into());
    }
    Ok(())
}

fn remedies(of: BTreeMap<String, String>) -> Result<Remedies, String> {
    let mut remedies = Remedies::default();
    for (key, text) in of {
        if text.trim().is_empty() {
            return Err(format!("`remedy.{key}` is empty; say what to change"));
        }
        match Framework::ALL.into_iter().find(|framework| framework.key() == key) {
            Some(framework) => _ = remedies.by_framework.insert(framework, text),
            None if key == ANY => remedies.any = Some(text),
            None => {
                let keys = Framework::ALL.map(Framework::key).join(", ");
                return Err(format!("`remedy.{key}`: the keys of a remedy are {keys} and {ANY}"));
            }
        }
    }
    if remedies == Remedies::default() {
        return Err("`remedy` is empty; say what to change, for a framework or for any program".into());
    }
    Ok(remedies)
}

fn claims(text: Option<&str>) -> Result<Claims, String> {
    Ok(match text {
        None | Some("matched") => Claims::Matched,
        Some("gaps") => Claims::Gaps,
        Some("idle") => Claims::Idle,
        Some("launches") => Claims::Launches,
        Some("allocating") => Claims::Allocating,
        Some("releasing") => Claims::Releasing,
        Some("loading") => Claims::Loading,
        Some("kernels") => Claims::Kernels,
        Some("collectives") => Claims::Collectives,
        Some("unknown") => Claims::Unknown,
        Some(_) => {
            return Err(
                "`claims` is matched, gaps, idle, launches, allocating, releasing, loading, kernels, \
                collectives or unknown"
                    .into(),
            );
        }
    })
}

/// `is_known`: whether the cause claims a time.
fn saves(shares: Option<[f64; 3]>, is_known: bool) -> Result<Saves, String> {
    let Some([least, likely, most]) = shares else {
        return match is_known {
            false => Ok(Saves::default()),
            true => Err("`saves` is missing: [least, likely, most], shares of the claimed time".into()),
        };
    };
    match 0.0 <= least && least <= likely && likely <= most && most <= 1.0 {
        true => Ok(Saves { least, likely, most }),
        false => Err("`saves` is three shares from 0 to 1: [least, likely, most]".into()),
    }
}

fn patterns(texts: Vec<String>) -> Vec<Pattern> {
    texts.into_iter().map(Pattern::new).collect()
}

fn example(of: Shown) -> Example {
    let kernels = of.kernel.into_iter().chain(of.kernels).collect();
    Example {
        kernels,
        looped: of.looped,
        line: of.line,
        host_line: of.host_line,
        wait_line: of.wait_line,
        host: of.host,
        call: of.call,
        function: of.function,
        value: of.value,
    }
}
