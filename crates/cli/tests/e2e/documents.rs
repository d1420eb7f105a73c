//! `docs/json.md`: its samples have the shape of what the commands print.
//!
//! `BLESS=1` writes new samples from a run of the demo: of lists, the entry that says most. The text around the samples is
//! kept.

use crate::common::{APEX, Sandbox, output};
use serde_json::{Map, Value};
use std::path::PathBuf;

/// Stands for what another sample shows.
const ELSEWHERE: &str = "…";

/// The documents: schema, command, and members that another document shows.
const DOCUMENTS: [(&str, &[&str], &[&str]); 9] = [
    ("apex.report/1", &["report", "--json", "s"], &[]),
    ("apex.advise/1", &["advise", "--json", "s"], &["advice"]),
    ("apex.export/1", &["export", "--format", "json", "--what", "launches", "s"], &["run", "profile"]),
    ("apex.predict/1", &["predict", "--json", "--device", "h200", "--what-if", "shared=1K", "s"], &[]),
    ("apex.diff/1", &["diff", "--json", "s", "s"], &[]),
    ("apex.ctl/1", &["ctl", "status", "--json", "s"], &[]),
    ("apex.doctor/1", &["doctor", "--json"], &[]),
    ("apex.collect/1", &["collect", "-o", "d", "--device", "cpu", "--rows", "4", "--json"], &[]),
    ("apex.suite/1", &["collect", "--list", "--json"], &[]),
];

/// Documents that take minutes to make: schema, and the one that lies in the repository.
const COMMITTED: [(&str, &str); 1] = [("apex.train/1", "crates/predict/models/card.json")];

fn page() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md")
}

#[test]
fn samples_have_the_shape_of_what_is_printed() {
    let sandbox = Sandbox::new();
    output(&mut sandbox.apex(&["demo", "--device", "cpu", "--timing", "all", "-o", "s"]), 0);
    let mut text = std::fs::read_to_string(page()).unwrap();
    let mut different = Vec::new();
    let printed = DOCUMENTS.map(|(schema, command, elsewhere)| {
        // The doctor may well find something here.
        (schema, sandbox.apex(command).output().unwrap().stdout, elsewhere)
    });
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let committed =
        COMMITTED.map(|(schema, file)| (schema, std::fs::read(root.join(file)).unwrap(), &[][..]));
    for (schema, printed, elsewhere) in printed.into_iter().chain(committed) {
        let printed: Value =
            serde_json::from_slice(&printed).unwrap_or_else(|error| panic!("{schema}: {error}"));
        assert_eq!(printed["schema"], schema);
        let (from, to) = sample_place(&text, schema);
        if std::env::var_os("BLESS").is_some() {
            let sample = pretty(&sample(printed, elsewhere), 0);
            let sample =
                sample.replace(APEX, "apex").replace(sandbox.path("").to_str().unwrap(), "/home/me/");
            text.replace_range(from..to, &format!("{sample}\n"));
            continue;
        }
        let sample: Value =
            serde_json::from_str(&text[from..to]).unwrap_or_else(|error| panic!("{schema}: {error}"));
        compare(schema, &sample, &merged(printed), &mut different);
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(page(), text).unwrap();
    }
    assert!(different.is_empty(), "docs/json.md is out of date; BLESS=1 renews it: {different:#?}");
}

/// Where the sample of a schema stands: in the first JSON block below its heading.
fn sample_place(text: &str, schema: &str) -> (usize, usize) {
    const OPEN: &str = "```json\n";
    let heading = text.find(&format!("## `{schema}`")).unwrap_or_else(|| panic!("no heading for {schema}"));
    let from = heading + text[heading..].find(OPEN).expect("a sample") + OPEN.len();
    (from, from + text[from..].find("```").expect("the sample's end"))
}

/// What stands in the page for a printed document.
fn sample(mut printed: Value, elsewhere: &[&str]) -> Value {
    for member in elsewhere {
        printed[member] = ELSEWHERE.into();
    }
    if printed["run"].is_object() {
        // Of no interest to a reader, and different on every machine.
        printed["run"]["cwd"] = "/home/me".into();
        for (member, value) in
            [("name", "machine"), ("cpu", "its processor"), ("kernel", "its kernel's release")]
        {
            printed["run"]["host"][member] = value.into();
        }
    }
    shortened(printed)
}

/// Longest list of plain values that is shown whole.
const WHOLE: usize = 4;
/// Longest line of a sample.
const WIDTH: usize = 110;

/// Lists cut, digits cut to those that mean something.
fn shortened(value: Value) -> Value {
    match value {
        Value::Array(entries) if entries.iter().any(Value::is_object) => {
            let most = entries.into_iter().rev().max_by_key(content);
            most.into_iter().map(shortened).collect()
        }
        Value::Array(entries) => entries.into_iter().take(WHOLE).map(shortened).collect(),
        Value::Object(members) => {
            members.into_iter().map(|(name, value)| (name, shortened(value))).collect::<Map<_, _>>().into()
        }
        Value::Number(number) if number.is_f64() => {
            let value = number.as_f64().unwrap_or(0.0);
            let digits = if value.abs() < 10.0 { 1e4 } else { 10.0 };
            ((value * digits).round() / digits).into()
        }
        other => other,
    }
}

/// How many values there are in it.
fn content(value: &Value) -> usize {
    match value {
        Value::Null => 0,
        Value::Array(entries) => entries.iter().map(content).max().unwrap_or(0),
        Value::Object(members) => members.values().map(content).sum(),
        _ => 1,
    }
}

/// JSON with what fits a line on one line.
fn pretty(value: &Value, indent: usize) -> String {
    let flat = value.to_string();
    let inner = " ".repeat(indent + 2);
    let block = |open: char, lines: Vec<String>, close: char| {
        format!("{open}\n{inner}{}\n{}{close}", lines.join(&format!(",\n{inner}")), " ".repeat(indent))
    };
    match value {
        _ if flat.len() + indent <= WIDTH => flat,
        Value::Array(entries) => {
            block('[', entries.iter().map(|entry| pretty(entry, indent + 2)).collect(), ']')
        }
        Value::Object(members) => {
            let member =
                |(name, value): (&String, &Value)| format!("\"{name}\": {}", pretty(value, indent + 2));
            block('{', members.iter().map(member).collect(), '}')
        }
        _ => flat,
    }
}

/// Lists become one entry that has everything that any of theirs has.
fn merged(value: Value) -> Value {
    match value {
        Value::Array(entries) => {
            Value::Array(entries.into_iter().map(merged).reduce(fill).into_iter().collect())
        }
        Value::Object(members) => {
            members.into_iter().map(|(name, value)| (name, merged(value))).collect::<Map<_, _>>().into()
        }
        other => other,
    }
}

/// `a`, with what it lacks taken from `b`.
fn fill(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Null, b) => b,
        (Value::Object(mut a), Value::Object(b)) => {
            for (name, value) in b {
                let own = a.remove(&name).unwrap_or(Value::Null);
                a.insert(name, fill(own, value));
            }
            a.into()
        }
        (Value::Array(a), Value::Array(b)) => {
            Value::Array(a.into_iter().chain(b).reduce(fill).into_iter().collect())
        }
        (a, _) => a,
    }
}

/// Notes where two values have different members or types. What is null, empty or elsewhere says nothing.
fn compare(place: &str, sample: &Value, printed: &Value, different: &mut Vec<String>) {
    match (sample, printed) {
        (Value::Null, _) | (_, Value::Null) => {}
        (Value::String(text), _) if text == ELSEWHERE => {}
        (Value::Object(a), Value::Object(b)) => {
            for name in a.keys().chain(b.keys()) {
                let place = format!("{place}.{name}");
                match (a.get(name), b.get(name)) {
                    (Some(a), Some(b)) => compare(&place, a, b, different),
                    (Some(_), None) => different.push(format!("{place} is in the sample only")),
                    _ => different.push(format!("{place} is not in the sample")),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            if let ([a, ..], [b, ..]) = (&a[..], &b[..]) {
                compare(&format!("{place}[]"), a, b, different);
            }
        }
        (a, b) if std::mem::discriminant(a) == std::mem::discriminant(b) => {}
        (a, b) => different.push(format!("{place}: {a} in the sample, {b} printed")),
    }
}
