//! `web/src/document.ts` is generated from the types that the page's document is serialised from.
//!
//! The generator reads the sources: names, fields in their order, doc comments, and serde's
//! attributes. It knows what these types use, and panics where it meets something else. Each
//! interface has the name by which the page's sources call the type, so types of one name need
//! different ones there (`use … as …`).
//!
//! `BLESS=1` writes the file.

use apex_conventions::documents::PAGE;
use apex_counts::LineCounts;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn manifest() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_types_of_the_page_are_those_of_its_document() {
    let mut types = Types::default();
    types.interface(&types.file("mod"), "Document");
    while let Some(wanted) = types.wanted.pop_front() {
        types.write(&wanted);
    }
    test_golden::assert_file(manifest().join("web/src/document.ts"), &types.written());
}

/// A source file.
#[derive(Clone, Default)]
struct Source {
    items: BTreeMap<String, Item>,
    /// Names of `use`: the crate or module that they begin with, and the name there.
    imported: BTreeMap<String, (String, String)>,
}

/// A serialised type.
#[derive(Clone, Default)]
struct Item {
    docs: Vec<String>,
    attributes: String,
    is_enum: bool,
    members: Vec<Member>,
}

/// A field, or a variant; of a variant, the type is that of its value.
#[derive(Clone, Default)]
struct Member {
    docs: Vec<String>,
    attributes: String,
    name: String,
    kind: Option<String>,
}

impl Source {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let mut source = Self::default();
        let (mut docs, mut attributes) = (Vec::new(), String::new());
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(doc) = line.strip_prefix("///") {
                docs.push(doc.trim().to_owned());
            } else if line.starts_with("#[") {
                attributes += line;
            } else if line.starts_with("use ") || line.starts_with("pub use ") {
                let mut all = line.to_owned();
                while !all.ends_with(';') {
                    all += lines.next().expect("the end of `use`");
                }
                source.import(all.trim_start_matches("pub ").trim_start_matches("use "));
            } else {
                let is_enum = line.contains("enum ");
                let head = line.split(if is_enum { "enum " } else { "struct " }).nth(1);
                let head = head.filter(|_| attributes.contains("Serialize") && line.ends_with('{'));
                if let Some(head) = head {
                    let name = head.split(['<', ' ']).next().unwrap().to_owned();
                    let members = members(&mut lines);
                    let attributes = attributes.clone();
                    source.items.insert(name, Item { docs: docs.clone(), attributes, is_enum, members });
                }
                docs.clear();
                attributes.clear();
            }
        }
        source
    }

    fn import(&mut self, path: &str) {
        let root = path.split("::").next().unwrap();
        for part in path.split(['{', '}', ',', ';']) {
            let (name, alias) = part.trim().split_once(" as ").unwrap_or((part, part));
            let last = |path: &str| path.trim().rsplit("::").next().unwrap().to_owned();
            self.imported.insert(last(alias), (root.to_owned(), last(name)));
        }
    }
}

/// The members of a type, whose first line was read.
fn members<'t>(lines: &mut impl Iterator<Item = &'t str>) -> Vec<Member> {
    let mut members = Vec::new();
    let mut next = Member::default();
    for line in lines.take_while(|line| *line != "}").map(str::trim) {
        if let Some(doc) = line.strip_prefix("///") {
            next.docs.push(doc.trim().to_owned());
        } else if line.starts_with("#[") {
            next.attributes += line;
        } else if let Some(member) = line.strip_suffix(',') {
            let value = member.strip_suffix(')').and_then(|variant| variant.split_once('('));
            let (name, kind) = match member.split_once(": ") {
                Some((name, kind)) => (name.rsplit(' ').next().unwrap(), Some(kind)),
                None => value.map_or((member, None), |(name, kind)| (name, Some(kind))),
            };
            members.push(Member { name: name.to_owned(), kind: kind.map(str::to_owned), ..next });
            next = Member::default();
        }
    }
    members
}

/// The value of an attribute of serde.
fn value<'t>(attributes: &'t str, name: &str) -> Option<&'t str> {
    let (_, rest) = attributes.split_once(&format!("{name} = \""))?;
    Some(rest.split_once('"').expect("the end of a string").0)
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}

/// A doc comment.
fn comment(text: &mut String, docs: &[String], indent: &str) {
    let joined = docs.join(" ").replace("[`", "`").replace("`]", "`");
    match indent.len() + joined.len() {
        _ if docs.is_empty() => {}
        ..=110 => writeln!(text, "{indent}/** {joined} */").unwrap(),
        _ => {
            writeln!(text, "{indent}/**").unwrap();
            docs.iter().for_each(|line| writeln!(text, "{indent} * {line}").unwrap());
            writeln!(text, "{indent} */").unwrap();
        }
    }
}

/// The interfaces that were written, and those that they refer to.
#[derive(Default)]
struct Types {
    sources: BTreeMap<PathBuf, Source>,
    /// The place of each named type: file and name there.
    named: BTreeMap<String, (PathBuf, String)>,
    wanted: VecDeque<String>,
    text: String,
}

impl Types {
    /// The path of a module of the document.
    fn file(&self, module: &str) -> PathBuf {
        manifest().join("src/document").join(module).with_extension("rs")
    }

    fn source(&mut self, path: &Path) -> &Source {
        self.sources.entry(path.to_owned()).or_insert_with(|| Source::read(path))
    }

    fn item(&mut self, path: &Path, name: &str) -> Item {
        let item = self.source(path).items.get(name).cloned();
        item.unwrap_or_else(|| panic!("{} has no serialised type {name}", path.display()))
    }

    /// The file of a crate or of the document that has a type.
    fn find(&mut self, root: &str, name: &str) -> PathBuf {
        let folder = match root {
            "super" | "crate" => manifest().join("src/document"),
            module if self.file(module).exists() => return self.file(module),
            krate => folder_of(krate),
        };
        let mut files = Vec::new();
        rust_files(&folder, &mut files);
        files.retain(|path| self.source(path).items.contains_key(name));
        assert_eq!(files.len(), 1, "files of {root} that have a type {name}");
        files.remove(0)
    }

    /// The name of a type, which is written later.
    fn interface(&mut self, path: &Path, name: &str) -> String {
        self.named_interface(path, name, name)
    }

    fn named_interface(&mut self, path: &Path, name: &str, called: &str) -> String {
        let place = (path.to_owned(), name.to_owned());
        let known = self.named.entry(called.to_owned()).or_insert_with(|| {
            self.wanted.push_back(called.to_owned());
            place.clone()
        });
        assert_eq!(*known, place, "two types are called {called}");
        called.to_owned()
    }

    /// A Rust type in TypeScript; `within` is the file that names it.
    fn of(&mut self, kind: &str, within: &Path) -> String {
        let kind = kind.trim_start_matches('&').trim();
        let kind = if kind.starts_with('\'') { kind.split_once(' ').expect("a type").1 } else { kind };
        let inside = |open: &str, close: &str| kind.strip_prefix(open)?.strip_suffix(close);
        if let Some(inner) = inside("Option<", ">") {
            return format!("{} | null", self.of(inner, within));
        }
        if let Some(inner) = inside("Vec<", ">").or_else(|| inside("[", "]")) {
            let inner = self.of(inner, within);
            return if inner.contains(' ') { format!("({inner})[]") } else { format!("{inner}[]") };
        }
        if let Some(inner) = inside("BTreeMap<", ">") {
            let (_, value) = inner.split_once(", ").expect("a key and a value");
            return format!("Record<string, {}>", self.of(value, within));
        }
        if let Some(inner) = inside("(", ")") {
            let parts: Vec<String> = inner.split(", ").map(|part| self.of(part, within)).collect();
            return format!("[{}]", parts.join(", "));
        }
        match kind {
            "u32" | "u64" | "usize" | "i32" | "f64" => "number".to_owned(),
            "bool" => "boolean".to_owned(),
            "str" | "String" => "string".to_owned(),
            // It has an implementation of its own.
            "Dim3" => "Dim3".to_owned(),
            named => self.path(named.split('<').next().unwrap(), within),
        }
    }

    /// A type that is named by a path.
    fn path(&mut self, path: &str, within: &Path) -> String {
        if let Some((root, name)) = path.split_once("::") {
            let module = self.file(root);
            let file = if module.exists() { module } else { self.find(root, name) };
            return self.interface(&file, name);
        }
        if self.source(within).items.contains_key(path) {
            return self.interface(within, path);
        }
        let (root, name) = self.source(within).imported.get(path).cloned().expect(path);
        // A macro makes it: its members are counts.
        if name == "LineCounts" {
            let place = (PathBuf::new(), name);
            self.named.entry(path.to_owned()).or_insert_with(|| {
                self.wanted.push_back(path.to_owned());
                place
            });
            return path.to_owned();
        }
        let file = self.find(&root, &name);
        self.named_interface(&file, &name, path)
    }

    fn write(&mut self, called: &str) {
        let (path, name) = self.named[called].clone();
        let item = if name == "LineCounts" { line_counts() } else { self.item(&path, &name) };
        let mut text = "\n".to_owned();
        comment(&mut text, &item.docs, "");
        // The value of an untagged variant stands for itself.
        let is_plain = |variant: &Member| variant.kind.is_none() || variant.attributes.contains("untagged");
        if item.is_enum && item.members.iter().all(is_plain) {
            let name = |variant: &Member| match &variant.kind {
                Some(kind) => self.of(kind, &path),
                None => format!("'{}'", serialised(&item, variant)),
            };
            let names = item.members.iter().map(name).collect::<Vec<_>>().join(" | ");
            writeln!(text, "export type {called} = {names};").unwrap();
        } else {
            writeln!(text, "export interface {called} {{").unwrap();
            if called == "Document" {
                writeln!(text, "  schema: '{PAGE}';\n  apex_version: string;").unwrap();
            }
            self.members(&mut text, &item, &path);
            writeln!(text, "}}").unwrap();
        }
        self.text += &text;
    }

    fn members(&mut self, text: &mut String, item: &Item, path: &Path) {
        for member in &item.members {
            let kind = member.kind.as_deref().expect("a type");
            if member.attributes.contains("flatten") {
                let (root, name) = self.source(path).imported[kind.trim_start_matches("&'a ")].clone();
                let file = self.find(&root, &name);
                let flattened = self.item(&file, &name);
                self.members(text, &flattened, &file);
                continue;
            }
            let kind = match value(&member.attributes, "with") {
                Some(_) => "string".to_owned(),
                None => self.of(kind, path),
            };
            // Of the variants of an enum, a value has one.
            let is_optional = member.attributes.contains("skip_serializing_if") || item.is_enum;
            let (mark, kind) = match is_optional {
                true => ("?", kind.trim_end_matches(" | null")),
                false => ("", &*kind),
            };
            comment(text, &member.docs, "  ");
            writeln!(text, "  {}{mark}: {kind};", serialised(item, member)).unwrap();
        }
    }

    fn written(&self) -> String {
        format!(
            "// The document `{PAGE}`, which docs/json.md describes: generated from the Rust types by\n\
             // crates/show/page/tests/typescript.rs. Times are nanoseconds, shares run from 0 to 1.\n\n\
             export type Dim3 = [number, number, number];\n{}",
            self.text
        )
    }
}

/// The name of a member in JSON.
fn serialised(item: &Item, member: &Member) -> String {
    match (value(&member.attributes, "rename"), value(&item.attributes, "rename_all")) {
        (Some(name), _) => name.to_owned(),
        (None, Some("snake_case")) => snake_case(&member.name),
        (None, None) => member.name.clone(),
        (None, Some(other)) => panic!("names in {other}"),
    }
}

fn line_counts() -> Item {
    let serde_json::Value::Object(counts) = serde_json::to_value(LineCounts::default()).unwrap() else {
        panic!("counts have names");
    };
    let member =
        |name: &String| Member { name: name.clone(), kind: Some("u64".to_owned()), ..Member::default() };
    let docs = vec!["The counts of a line.".to_owned()];
    Item { docs, members: counts.keys().map(member).collect(), ..Item::default() }
}

/// The sources of a crate, whose folder the workspace's manifest names.
fn folder_of(krate: &str) -> PathBuf {
    let root = manifest().ancestors().find(|folder| folder.join("Cargo.lock").exists()).expect("a root");
    let text = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let line = format!("\n{} = {{ path = \"", krate.replace('_', "-"));
    let (_, rest) = text.split_once(&line).unwrap_or_else(|| panic!("the workspace has no crate {krate}"));
    root.join(rest.split_once('"').unwrap().0).join("src")
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}
