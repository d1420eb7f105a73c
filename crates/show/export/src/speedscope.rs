//! Sampled call stacks of the host while devices were idle, as a file of speedscope
//! (<https://www.speedscope.app>): one sampled profile for each idle account, whose weights are the
//! idle time, nanoseconds. The first frames of a stack are its process, where there are several,
//! and its thread.

use apex_ordered::Order;
use std::collections::BTreeMap;
use std::io::{self, Write};

use apex_profile::{HostFrame, HostStack, Profile};
use serde::Serialize;

use crate::idle_stacks::{self, Category};

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'p> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: &'static str,
    name: &'static str,
    active_profile_index: u32,
    shared: Shared<'p>,
    profiles: Vec<Sampled>,
}

#[derive(Serialize)]
struct Shared<'p> {
    frames: Vec<Shown<'p>>,
}

#[derive(Serialize)]
struct Shown<'p> {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'p str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sampled {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'static str,
    unit: &'static str,
    start_value: f64,
    end_value: f64,
    samples: Vec<Vec<usize>>,
    weights: Vec<f64>,
}

/// Frames of the document, each once.
#[derive(Default)]
struct Frames<'p> {
    list: Vec<Shown<'p>>,
    of_host: BTreeMap<&'p HostFrame, usize>,
    /// Those that stand for a process or a thread, by their text.
    of_groups: BTreeMap<String, usize>,
}

impl<'p> Frames<'p> {
    fn push(list: &mut Vec<Shown<'p>>, frame: Shown<'p>) -> usize {
        list.push(frame);
        list.len() - 1
    }

    /// The place of a process's or a thread's frame.
    fn group(&mut self, name: String) -> usize {
        let Self { list, of_groups, .. } = self;
        let shown = |name: &String| Shown { name: name.clone(), file: None, line: None };
        *of_groups.entry(name).or_insert_with_key(|name| Self::push(list, shown(name)))
    }

    /// The places of a stack's frames, outermost first.
    fn of(&mut self, process: Option<&String>, stack: &'p HostStack) -> Vec<usize> {
        let process = process.map(|process| self.group(process.clone()));
        let thread = self.group(format!("thread {}", stack.thread));
        let Self { list, of_host, .. } = self;
        let host = |frame: &'p HostFrame| {
            let shown = || Shown {
                name: frame.qualified_name(),
                file: Some(&frame.frame.file),
                line: frame.frame.line,
            };
            *of_host.entry(frame).or_insert_with(|| Self::push(list, shown()))
        };
        process.into_iter().chain([thread]).chain(stack.frames.iter().rev().map(host)).collect()
    }
}

/// Writes the stacks of a profile.
///
/// # Errors
/// Those of the output.
pub fn write(profile: &Profile, mut out: impl Write) -> io::Result<()> {
    let mut frames = Frames::default();
    let mut by_category: BTreeMap<Category, Sampled> = BTreeMap::new();
    let sums = idle_stacks::of(profile);
    let processes = idle_stacks::processes(profile, &sums);
    for (key, sum) in sums {
        let sampled = by_category.entry(key.category).or_insert_with(|| Sampled::of(key.category));
        sampled.samples.push(frames.of(processes.get(&key.process), &profile.host_stacks[key.stack]));
        sampled.weights.push(sum.ns);
        sampled.end_value += sum.ns;
    }
    let mut profiles: Vec<Sampled> = by_category.into_values().collect();
    profiles.order_by(|a, b| b.end_value.total_cmp(&a.end_value));
    let document = Document {
        schema: SCHEMA,
        exporter: "apex",
        name: idle_stacks::what(profile),
        active_profile_index: 0,
        shared: Shared { frames: frames.list },
        profiles,
    };
    serde_json::to_writer(&mut out, &document)?;
    out.flush()
}

impl Sampled {
    fn of(category: Category) -> Self {
        Self {
            kind: "sampled",
            name: category.name(),
            unit: "nanoseconds",
            start_value: 0.0,
            end_value: 0.0,
            samples: Vec::new(),
            weights: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::idle_stacks::fixture;
    use super::*;
    use serde_json::Value;

    #[test]
    fn each_account_is_a_profile_whose_weights_are_its_idle_time() {
        let mut out = Vec::new();
        write(&fixture::profile(), &mut out).unwrap();
        let document: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(document["$schema"], SCHEMA);
        let frames = document["shared"]["frames"].as_array().unwrap();
        let name =
            |frame: &Value| frames[frame.as_u64().unwrap() as usize]["name"].as_str().unwrap().to_owned();
        let profiles = document["profiles"].as_array().unwrap();
        let read: Vec<_> = profiles
            .iter()
            .map(|profile| {
                let stack =
                    |of: &Value| of.as_array().unwrap().iter().map(name).collect::<Vec<_>>().join(" > ");
                let stacks: Vec<String> = profile["samples"].as_array().unwrap().iter().map(stack).collect();
                let weights: Vec<f64> =
                    profile["weights"].as_array().unwrap().iter().map(|of| of.as_f64().unwrap()).collect();
                assert_eq!(weights.iter().sum::<f64>(), profile["endValue"].as_f64().unwrap());
                (profile["name"].as_str().unwrap(), stacks, weights)
            })
            .collect();
        let odd = "thread main > a;b\\nc".replace("\\n", "\n");
        assert_eq!(
            read,
            [
                ("idle: host code", vec!["thread main > main > f".to_owned(), odd.clone()], vec![6e6, 2e6]),
                ("idle: launch calls", vec![odd], vec![3e6]),
            ]
        );
        assert_eq!(frames.len(), 4, "each frame is there once");
        let main = frames.iter().find(|frame| frame["name"] == "main").expect("a frame");
        assert_eq!((&main["file"], &main["line"]), (&"/a/outer.py".into(), &7.into()));
    }

    #[test]
    fn ranks_are_kept_apart() {
        let mut out = Vec::new();
        write(&fixture::two_ranks(), &mut out).unwrap();
        let document: Value = serde_json::from_slice(&out).unwrap();
        let frames = &document["shared"]["frames"];
        let firsts: Vec<&Value> = document["profiles"][0]["samples"]
            .as_array()
            .unwrap()
            .iter()
            .map(|stack| &frames[stack[0].as_u64().unwrap() as usize]["name"])
            .collect();
        let ranks = ["rank 0 (process 650)", "rank 1 (process 651)"];
        assert_eq!(firsts, [ranks[0], ranks[0], ranks[1], ranks[1]]);
    }
}
