//! Sampled call stacks of the host while devices were idle, as a processed profile of Firefox
//! Profiler (<https://profiler.firefox.com>), format version 48: a thread of the profile is one of
//! the program, an idle account is a category, and a sample weighs the idle time that it stands
//! for, milliseconds.
//!
//! The samples of a thread follow each other by account: the format needs times, and stacks are
//! sums, so the time axis is idle time and not the clock.

use std::collections::BTreeMap;
use std::io::{self, Write};

use apex_profile::{HostFrame, HostStack, HostState, IdleCause, Profile};
use serde_json::{Value, json};

use crate::idle_stacks::{self, Category};

/// The version of the format.
const VERSION: u32 = 48;
/// The version of Gecko's format from which such profiles are made.
const GECKO_VERSION: u32 = 24;
/// Colours of the format, by idle account in the order of [`IdleCause::ALL`], or by state in that
/// of [`HostState::ALL`].
const COLOURS: [&str; IdleCause::ALL.len()] =
    ["orange", "purple", "green", "red", "brown", "magenta", "lightblue", "yellow", "transparent"];

/// Writes the stacks of a profile.
///
/// # Errors
/// Those of the output.
pub fn write(profile: &Profile, mut out: impl Write) -> io::Result<()> {
    let sums = idle_stacks::of(profile);
    let processes = idle_stacks::processes(profile, &sums);
    let mut threads: BTreeMap<(&str, &str), Thread<'_>> = BTreeMap::new();
    for (key, sum) in &sums {
        let stack = &profile.host_stacks[key.stack];
        let process = processes.get(&key.process).unwrap_or(&stack.process);
        let thread = threads.entry((process, &*stack.thread)).or_default();
        thread.add(stack, key.category, sum.ns / 1e6);
    }
    let mut last = None;
    let document = |((of, thread), number): ((&(&str, &str), &Thread<'_>), usize)| {
        let is_first = last.replace(of.0.to_owned()).as_deref() != Some(of.0);
        thread.document(*of, number, is_first)
    };
    let threads: Vec<Value> = threads.iter().zip(0..).map(document).collect();
    let document = json!({
        "meta": meta(profile),
        "libs": [],
        "threads": threads,
        "pages": [],
        "profilerOverhead": [],
        "counters": [],
    });
    serde_json::to_writer(&mut out, &document)?;
    out.flush()
}

/// What concerns the whole profile. The front end needs a grey category, and takes the first.
fn meta(profile: &Profile) -> Value {
    let category =
        |name: &str, colour: &str| json!({"name": name, "color": colour, "subcategories": ["Other"]});
    let all: Vec<Category> = match profile.host {
        Some(_) => HostState::ALL.into_iter().map(Category::Host).collect(),
        None => IdleCause::ALL.into_iter().map(Category::Idle).collect(),
    };
    let all = all.into_iter().zip(COLOURS).map(|(of, colour)| category(of.name(), colour));
    let categories: Vec<Value> = [category("Other", "grey")].into_iter().chain(all).collect();
    json!({
        "version": GECKO_VERSION,
        "preprocessedProfileVersion": VERSION,
        "product": format!("APEX: {}", idle_stacks::what(profile)),
        "processType": 0,
        "stackwalk": 1,
        "debug": false,
        "interval": 1.0,
        "startTime": 0.0,
        "symbolicated": true,
        "categories": categories,
        "markerSchema": [],
        "extensions": {"length": 0, "baseURL": [], "id": [], "name": []},
        "usesOnlyOneStackType": true,
        "doesNotUseFrameImplementation": true,
        "sourceCodeIsNotOnSearchfox": true,
    })
}

/// The tables of a thread.
#[derive(Default)]
struct Thread<'p> {
    strings: Numbered<String>,
    /// A frame and its function have the same number.
    frames: Numbered<&'p HostFrame>,
    /// Number of the caller's stack, frame, category.
    stacks: Numbered<(Option<usize>, usize, usize)>,
    /// Stack and milliseconds.
    samples: Vec<(Option<usize>, f64)>,
}

impl<'p> Thread<'p> {
    fn add(&mut self, stack: &'p HostStack, category: Category, ms: f64) {
        // The first one is grey.
        let category = 1 + match category {
            Category::Idle(cause) => cause as usize,
            Category::Host(state) => state as usize,
        };
        let caller_first = stack.frames.iter().rev();
        let innermost = caller_first.fold(None, |caller, frame| {
            let frame = self.frames.number(frame);
            Some(self.stacks.number((caller, frame, category)))
        });
        self.samples.push((innermost, ms));
    }

    /// `is_first`: of its process, which the front end shows by it.
    fn document(&self, (process, name): (&str, &str), number: usize, is_first: bool) -> Value {
        let mut strings = self.strings.clone();
        let frames = self.frames.list.len();
        let names: Vec<usize> =
            self.frames.list.iter().map(|frame| strings.number(frame.qualified_name())).collect();
        let files: Vec<usize> =
            self.frames.list.iter().map(|frame| strings.number(frame.frame.file.to_string())).collect();
        let lines: Vec<Option<u32>> = self.frames.list.iter().map(|frame| frame.frame.line).collect();
        let column = |value: Value| vec![value; frames];
        let nothing = column(Value::Null);
        let funcs: Vec<usize> = (0..frames).collect();
        let stacks = &self.stacks.list;
        let begins: Vec<f64> =
            self.samples.iter().scan(0.0, |at, (_, ms)| Some(std::mem::replace(at, *at + ms))).collect();
        let end: f64 = self.samples.iter().map(|(_, ms)| ms).sum();
        json!({
            "processType": "default",
            "processName": process,
            "processStartupTime": 0.0,
            "processShutdownTime": end,
            "registerTime": 0.0,
            "unregisterTime": end,
            "pausedRanges": [],
            "name": name,
            "isMainThread": is_first,
            "pid": process,
            "tid": number,
            "samples": {
                "length": self.samples.len(),
                "stack": self.samples.iter().map(|(stack, _)| *stack).collect::<Vec<_>>(),
                "time": begins,
                "weight": self.samples.iter().map(|(_, ms)| *ms).collect::<Vec<_>>(),
                "weightType": "tracing-ms",
            },
            "markers": {
                "length": 0, "category": [], "data": [], "endTime": [], "name": [], "phase": [], "startTime": [],
            },
            "stackTable": {
                "length": stacks.len(),
                "prefix": stacks.iter().map(|(caller, ..)| *caller).collect::<Vec<_>>(),
                "frame": stacks.iter().map(|(_, frame, _)| *frame).collect::<Vec<_>>(),
                "category": stacks.iter().map(|(.., category)| *category).collect::<Vec<_>>(),
                "subcategory": vec![0; stacks.len()],
            },
            "frameTable": {
                "length": frames, "address": column((-1).into()), "inlineDepth": column(0.into()),
                "category": &nothing, "subcategory": &nothing, "func": &funcs, "nativeSymbol": &nothing,
                "innerWindowID": &nothing, "implementation": &nothing, "line": lines, "column": &nothing,
            },
            "funcTable": {
                "length": frames, "name": names, "isJS": column(false.into()), "relevantForJS": column(false.into()),
                "resource": column((-1).into()), "fileName": files, "lineNumber": &nothing, "columnNumber": &nothing,
            },
            "resourceTable": {"length": 0, "lib": [], "name": [], "host": [], "type": []},
            "nativeSymbols": {"length": 0, "address": [], "functionSize": [], "libIndex": [], "name": []},
            "stringArray": strings.list,
        })
    }
}

/// Things, each once, with their numbers.
#[derive(Clone)]
struct Numbered<T> {
    list: Vec<T>,
    numbers: BTreeMap<T, usize>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { list: Vec::new(), numbers: BTreeMap::new() }
    }
}

impl<T: Clone + Ord> Numbered<T> {
    fn number(&mut self, thing: T) -> usize {
        let Self { list, numbers } = self;
        *numbers.entry(thing).or_insert_with_key(|thing| {
            list.push(thing.clone());
            list.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::idle_stacks::fixture;
    use super::*;

    fn document() -> Value {
        let mut out = Vec::new();
        write(&fixture::profile(), &mut out).unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    /// The names of a stack's frames, outermost first.
    fn names(thread: &Value, stack: &Value) -> Vec<String> {
        let at = |table: &str, column: &str, row: &Value| {
            thread[table][column][row.as_u64().unwrap() as usize].clone()
        };
        let (mut stack, mut names) = (stack.clone(), Vec::new());
        while !stack.is_null() {
            let func = at("frameTable", "func", &at("stackTable", "frame", &stack));
            let name = at("funcTable", "name", &func).as_u64().unwrap() as usize;
            names.insert(0, thread["stringArray"][name].as_str().unwrap().to_owned());
            stack = at("stackTable", "prefix", &stack);
        }
        names
    }

    #[test]
    fn samples_weigh_the_idle_time_and_categories_are_the_accounts() {
        let document = document();
        assert_eq!(document["meta"]["preprocessedProfileVersion"], VERSION);
        let [thread] = &document["threads"].as_array().unwrap()[..] else { panic!("{document:#}") };
        assert_eq!(
            (&thread["name"], &thread["samples"]["weightType"]),
            (&"main".into(), &"tracing-ms".into())
        );
        let column = |name: &str| thread["samples"][name].as_array().unwrap().clone();
        let read: Vec<_> = column("stack")
            .iter()
            .zip(column("weight"))
            .map(|(stack, ms)| {
                let category = &thread["stackTable"]["category"][stack.as_u64().unwrap() as usize];
                let category = &document["meta"]["categories"][category.as_u64().unwrap() as usize]["name"];
                (
                    category.as_str().unwrap().to_owned(),
                    names(thread, stack).join(" > "),
                    ms.as_f64().unwrap(),
                )
            })
            .collect();
        let odd = "a;b\nc".to_owned();
        let of = |account: &str, stack: &str, ms| (account.to_owned(), stack.to_owned(), ms);
        assert_eq!(
            read,
            [
                of("idle: launch calls", &odd, 3.0),
                of("idle: host code", "main > f", 6.0),
                of("idle: host code", &odd, 2.0),
            ]
        );
        assert_eq!(column("time"), [json!(0.0), json!(3.0), json!(9.0)]);
        let main = thread["stringArray"].as_array().unwrap().iter().any(|text| text == "/a/outer.py");
        assert!(main, "files of frames: {thread:#}");
    }

    #[test]
    fn columns_of_a_table_have_its_length() {
        let document = document();
        let thread = document["threads"][0].as_object().unwrap();
        let tables = thread.values().filter(|value| value["length"].is_u64());
        let mut seen = 0;
        for table in tables {
            for (name, column) in table.as_object().unwrap() {
                let Some(column) = column.as_array() else { continue };
                assert_eq!(column.len() as u64, table["length"].as_u64().unwrap(), "{name}");
                seen += 1;
            }
        }
        assert!(seen > 30, "{seen} columns");
    }

    #[test]
    fn ranks_are_processes_of_their_own() {
        let mut out = Vec::new();
        write(&fixture::two_ranks(), &mut out).unwrap();
        let document: Value = serde_json::from_slice(&out).unwrap();
        let threads = document["threads"].as_array().unwrap();
        let names: Vec<&Value> = threads.iter().map(|thread| &thread["processName"]).collect();
        assert_eq!(names, ["rank 0 (process 650)", "rank 1 (process 651)"]);
        let is_whole =
            |thread: &Value| thread["pid"] == thread["processName"] && thread["isMainThread"] == true;
        assert!(threads.iter().all(is_whole), "{threads:?}");
    }
}
