//! `cargo xtask abi-diff`: what a toolkit's headers say otherwise than the committed table.
//!
//! The table is generated anew in memory, and both texts are cut into items (entry points, types,
//! constants), each one line in a normal form. So nothing is compared that the generator does not
//! write, and nothing that it writes is left out, save names of parameters: toolkits rename them
//! freely.

use crate::{abi_gen, render};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Compares and prints. The exit code is 0 where nothing differs, else 1.
///
/// # Errors
/// The headers or the committed files cannot be read.
pub fn run(headers: &Path, as_json: bool) -> Result<ExitCode> {
    let toolkit = abi_gen::read(headers)?;
    let committed = Items::read(|name| {
        let path = abi_gen::abi_folder().join("src").join(name);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    })?;
    let generated: BTreeMap<&str, String> = render::files(&toolkit).into_iter().collect();
    let fresh = Items::read(|name| generated.get(name).cloned().context("no such file is generated"))?;
    let sections = [
        Section::new("entry points", &committed.entry_points, &fresh.entry_points),
        Section::new("types", &committed.types, &fresh.types),
        Section::new("constants", &committed.constants, &fresh.constants),
    ];
    let report = if as_json {
        let mut report = json!({ "table": committed.version, "headers": fresh.version });
        for section in &sections {
            report[section.title.replace(' ', "_")] = section.json();
        }
        format!("{report:#}\n")
    } else {
        let head =
            format!("table: CUDA_VERSION {}; headers: CUDA_VERSION {}\n", committed.version, fresh.version);
        sections.iter().map(Section::text).fold(head, |text, section| text + "\n" + &section)
    };
    // A reader that closes the pipe has seen enough.
    let _ = std::io::stdout().write_all(report.as_bytes());
    Ok(ExitCode::from(u8::from(!sections.iter().all(Section::is_empty))))
}

/// The definitions in the generated files: name and normal form.
struct Items {
    version: String,
    entry_points: BTreeMap<String, String>,
    types: BTreeMap<String, String>,
    constants: BTreeMap<String, String>,
}

impl Items {
    fn read(file: impl Fn(&str) -> Result<String>) -> Result<Items> {
        let signatures = items(&file("signature.rs")?);
        let entries = table_entries(&file("table.rs")?);
        let with_signature = entries.into_iter().map(|(symbol, facts)| {
            let signature = signatures.get(&symbol).map_or("no signature", String::as_str);
            (symbol, format!("{facts}; {signature}"))
        });
        let mut constants = items(&file("constants.rs")?);
        let version =
            constants.remove("CUDA_VERSION").context("constants.rs does not define CUDA_VERSION")?;
        let version = version.rsplit(' ').next().unwrap_or_default().to_owned();
        let entry_points = with_signature.collect();
        Ok(Items { version, entry_points, types: items(&file("types.rs")?), constants })
    }
}

/// The rows `(index, symbol, base, version, stream, header),` of table.rs.
fn table_entries(text: &str) -> BTreeMap<String, String> {
    let rows = text.lines().filter_map(|line| line.trim().strip_prefix('(')?.strip_suffix("),"));
    let facts = rows.filter_map(|row| {
        let [_index, symbol, _base, version, stream, header] = row.split(", ").collect::<Vec<_>>()[..] else {
            return None;
        };
        Some((symbol.to_owned(), format!("version {version}, {stream}, {header}")))
    });
    facts.collect()
}

/// The public items of a generated file, each on one line without `pub`, kind and name. A record's
/// line goes on with its layout.
fn items(text: &str) -> BTreeMap<String, String> {
    let mut items: BTreeMap<String, String> = BTreeMap::new();
    let mut current: Option<String> = None;
    for line in text.lines() {
        if let Some((name, rest)) = item_start(line) {
            items.entry(name.clone()).or_default().push_str(rest);
            current = Some(name);
        } else if line.is_empty()
            || line == ");"
            || ["#", "//", "pub", "use"].iter().any(|start| line.starts_with(start))
        {
            current = None;
        } else if let Some(item) = current.as_ref().and_then(|name| items.get_mut(name)) {
            item.push(' ');
            item.push_str(line.trim());
        }
    }
    items.values_mut().for_each(|item| *item = one_line(item));
    items
}

/// The name that a line begins to define, and what follows it.
fn item_start(line: &str) -> Option<(String, &str)> {
    let starts = ["pub type ", "pub const ", "pub struct ", "pub union ", "plain!("];
    let rest = starts.iter().find_map(|start| line.strip_prefix(start))?;
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
    Some((rest[..end].to_owned(), &rest[end..]))
}

/// The same text however `rustfmt` broke it, and whatever a function's parameters are called.
fn one_line(item: &str) -> String {
    let mut line = item.split_whitespace().collect::<Vec<_>>().join(" ");
    for (broken, whole) in [("( ", "("), (", )", ")"), ("< ", "<"), (", >", ">"), (", }", " }")] {
        line = line.replace(broken, whole);
    }
    let line = line.trim_start_matches([':', '=', ' ']).trim_end_matches([';', ',']);
    // In a record the names are members', and they count.
    if line.starts_with('{') { line.to_owned() } else { without_names(line) }
}

/// A function's type without the names of its parameters: `fn(a: u32)` is `fn(u32)`.
fn without_names(signature: &str) -> String {
    let named = |part: &str| part.ends_with(": ");
    let kept = signature.split_inclusive(": ").map(|part| match named(part) {
        true => part
            .trim_end_matches(": ")
            .trim_end_matches(|c: char| c.is_ascii_alphanumeric() || "_#".contains(c)),
        false => part,
    });
    kept.collect()
}

/// The differences of one kind of item.
struct Section {
    title: &'static str,
    new: Vec<(String, String)>,
    gone: Vec<(String, String)>,
    changed: Vec<(String, String, String)>,
}

impl Section {
    fn new(
        title: &'static str,
        table: &BTreeMap<String, String>,
        headers: &BTreeMap<String, String>,
    ) -> Section {
        let mut section = Section { title, new: Vec::new(), gone: Vec::new(), changed: Vec::new() };
        let names: BTreeSet<&String> = table.keys().chain(headers.keys()).collect();
        for name in names {
            match (table.get(name), headers.get(name)) {
                (None, Some(is)) => section.new.push((name.clone(), is.clone())),
                (Some(was), None) => section.gone.push((name.clone(), was.clone())),
                (Some(was), Some(is)) if was != is => {
                    section.changed.push((name.clone(), was.clone(), is.clone()));
                }
                _ => {}
            }
        }
        section
    }

    fn is_empty(&self) -> bool {
        self.new.is_empty() && self.gone.is_empty() && self.changed.is_empty()
    }

    fn json(&self) -> Value {
        let named = |items: &[(String, String)]| -> Vec<Value> {
            items.iter().map(|(name, is)| json!({ "name": name, "is": is })).collect()
        };
        let changed = self.changed.iter();
        let changed: Vec<Value> = changed
            .map(|(name, table, headers)| json!({ "name": name, "table": table, "headers": headers }))
            .collect();
        json!({ "new": named(&self.new), "gone": named(&self.gone), "changed": changed })
    }

    fn text(&self) -> String {
        if self.is_empty() {
            return format!("{}: the same\n", self.title);
        }
        let counts = (self.new.len(), self.gone.len(), self.changed.len());
        let mut text = format!("{}: {} new, {} gone, {} changed\n", self.title, counts.0, counts.1, counts.2);
        let mut line = |line: String| text.extend([&line, "\n"]);
        self.new.iter().for_each(|(name, is)| line(format!("  new      {name}: {is}")));
        self.gone.iter().for_each(|(name, was)| line(format!("  gone     {name}: {was}")));
        for (name, table, headers) in &self.changed {
            line(format!("  changed  {name}\n    table    {table}\n    headers  {headers}"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks_and_parameter_names_do_not_count() {
        let broken =
            "pub type cuA =\n    unsafe extern \"C\" fn(\n    a: *mut CUb,\n    r#fn: u32,\n) -> CUresult;\n";
        let whole = "pub type cuA = unsafe extern \"C\" fn(first: *mut CUb, u32) -> CUresult;\n";
        assert_eq!(items(broken), items(whole));
        assert_eq!(items(whole)["cuA"], "unsafe extern \"C\" fn(*mut CUb, u32) -> CUresult");
    }

    #[test]
    fn a_record_is_its_members_and_its_layout() {
        let text = "#[repr(C)]\npub struct CUa {\n    pub x: u32,\n}\nplain!(CUa: 4, 4;\n    x at 0\n);\n\npub const CU_B: u32 = 7;\n";
        assert_eq!(items(text)["CUa"], "{ pub x: u32 }: 4, 4; x at 0");
        assert_eq!(items(text)["CU_B"], "u32 = 7");
    }

    #[test]
    fn entries_are_the_rows_of_the_table() {
        let text = "{ [$($args)*]\n    (0, cuA, cuA, 2000, Legacy, Core),\n    (1, cuB_v2, cuB, 3020, PerThread, Gl),\n}";
        let entries = table_entries(text);
        assert_eq!(
            (entries["cuA"].as_str(), entries["cuB_v2"].as_str()),
            ("version 2000, Legacy, Core", "version 3020, PerThread, Gl")
        );
    }

    #[test]
    fn a_section_names_new_gone_and_changed() {
        let map = |items: &[(&str, &str)]| items.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
        let section = Section::new(
            "types",
            &map(&[("a", "1"), ("b", "2"), ("c", "3")]),
            &map(&[("b", "2"), ("c", "4"), ("d", "5")]),
        );
        let expected = json!({
            "new": [{ "name": "d", "is": "5" }],
            "gone": [{ "name": "a", "is": "1" }],
            "changed": [{ "name": "c", "table": "3", "headers": "4" }],
        });
        assert_eq!(section.json(), expected);
        assert!(!section.is_empty());
        assert!(Section::new("types", &map(&[("a", "1")]), &map(&[("a", "1")])).is_empty());
    }
}
