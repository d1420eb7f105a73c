//! Frames of Python: intervals of a thread in which a function runs, as `torch.profiler` records
//! them with `with_stack=True`.
//!
//! A frame's name is `file(line): function`. The line is the function's first one: the trace does
//! not tell the line of the call.

use crate::bounds::{MOST_EVENTS, end};
use crate::places::Places;
use apex_trace::definition::{CallStack, PythonFrame};
use apex_trace::python::{LineTable, PythonCode};
use std::collections::HashMap;

/// Frames of one stack that are kept, innermost first.
const MOST_DEPTH: usize = 128;
/// Stacks that are told apart, at most; launches beyond have none.
const MOST_STACKS: usize = 200_000;

/// An interval in which a function runs.
#[derive(Clone, Copy, Debug)]
struct Interval {
    thread: u32,
    start: i64,
    end: i64,
    code: u32,
}

/// The frames of a process.
#[derive(Debug, Default)]
pub struct Frames {
    codes: Places<String>,
    list: Vec<Interval>,
}

impl Frames {
    /// Adds a frame of a thread.
    pub fn add(&mut self, thread: u32, start: i64, ns: u64, name: &str) {
        // Objects have addresses in their names, which would make each one another function.
        let name = name.split(" object at 0x").next().unwrap_or(name);
        if self.list.len() < MOST_EVENTS {
            let code = self.codes.number(name.to_owned());
            self.list.push(Interval { thread, start, end: end(start, ns), code });
        }
    }

    /// Keeps the intervals whose start and duration please.
    pub fn retain(&mut self, pleases: impl Fn(i64, u64) -> bool) {
        self.list.retain(|of| pleases(of.start, of.end.abs_diff(of.start)));
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The code objects, numbered from 1.
    pub fn codes(&self) -> impl Iterator<Item = PythonCode> {
        self.codes.list.iter().zip(1..).map(|(name, id)| code(id, name))
    }

    /// Puts the frames in the order of threads and time.
    pub fn sort(&mut self) {
        self.list.sort_by_key(|of| (of.thread, of.start, std::cmp::Reverse(of.end)));
    }

    /// A way through the frames of a thread, once they are sorted.
    pub fn of_thread(&self, thread: u32) -> Walk<'_> {
        let begin = self.list.partition_point(|of| of.thread < thread);
        let end = self.list.partition_point(|of| of.thread <= thread);
        Walk { rest: &self.list[begin..end], open: Vec::new() }
    }
}

/// The function that a name means.
fn code(id: u32, name: &str) -> PythonCode {
    let parts = name.split_once("): ").and_then(|(place, function)| {
        let (file, line) = place.rsplit_once('(')?;
        Some((file, line.parse().ok()?, function))
    });
    let (file, first_line, function) = parts.unwrap_or((BUILT_IN, 0, name));
    let lines = if first_line > 0 { LineTable::Differences(Vec::new()) } else { LineTable::Unknown };
    PythonCode { id, file: whole_path(file), function: function.to_owned(), first_line, lines }
}

/// The file of what is no line of Python: no code of the user's.
const BUILT_IN: &str = "<frozen built-in>";
/// Packages whose files a trace names without the folder that they are installed in.
const PACKAGES: [&str; 27] = [
    "accelerate",
    "apex",
    "bitsandbytes",
    "datasets",
    "deepspeed",
    "diffusers",
    "einops",
    "flash_attn",
    "flashinfer",
    "jax",
    "lightning",
    "megatron",
    "numpy",
    "pandas",
    "peft",
    "pytorch_lightning",
    "safetensors",
    "sglang",
    "timm",
    "torch",
    "torchaudio",
    "torchvision",
    "transformer_engine",
    "transformers",
    "triton",
    "vllm",
    "xformers",
];
/// Modules of the standard library that call the user's code.
const STANDARD: [&str; 14] = [
    "asyncio",
    "collections",
    "concurrent",
    "contextlib",
    "copy",
    "functools",
    "importlib",
    "inspect",
    "multiprocessing",
    "queue",
    "runpy",
    "selectors",
    "threading",
    "weakref",
];

/// A file's path with the folder that it was installed in, as far as its name tells: the trace cuts
/// that off, and by it the user's lines are told from those of libraries.
fn whole_path(file: &str) -> String {
    let top = file.split('/').next().unwrap_or(file).trim_end_matches(".py");
    if PACKAGES.contains(&top) && file.contains('/') {
        format!("python/site-packages/{file}")
    } else if STANDARD.contains(&top) {
        format!("python/lib/python3.x/{file}")
    } else {
        file.to_owned()
    }
}

/// A position among the frames of a thread.
pub struct Walk<'f> {
    rest: &'f [Interval],
    open: Vec<Interval>,
}

impl Walk<'_> {
    /// The codes of the functions that run at a moment, innermost first; moments do not decrease.
    pub fn at(&mut self, moment: i64) -> Vec<u32> {
        while let [next, rest @ ..] = self.rest {
            if next.start > moment {
                break;
            }
            self.open.retain(|open| open.end > next.start);
            self.open.push(*next);
            self.rest = rest;
        }
        self.open.retain(|open| open.end > moment);
        self.open.iter().rev().map(|open| open.code + 1).collect()
    }
}

/// The stacks of a process, each once.
#[derive(Default)]
pub struct Stacks {
    numbers: HashMap<(u32, Vec<u32>), u32>,
}

impl Stacks {
    /// The number of a thread's stack, and its definition where it is new; `None` without frames,
    /// or where there are too many stacks.
    pub fn number(
        &mut self,
        thread: u32,
        name: &str,
        mut codes: Vec<u32>,
    ) -> Option<(u32, Option<CallStack>)> {
        let is_cut = codes.len() > MOST_DEPTH;
        codes.truncate(MOST_DEPTH);
        if codes.is_empty() {
            return None;
        }
        let key = (thread, codes);
        if let Some(&known) = self.numbers.get(&key) {
            return Some((known, None));
        }
        if self.numbers.len() >= MOST_STACKS {
            return None;
        }
        let id = self.numbers.len() as u32 + 1;
        let python = key.1.iter().map(|&code| PythonFrame { code, offset: 0 }).collect();
        self.numbers.insert(key, id);
        Some((id, Some(CallStack { id, thread: name.to_owned(), python, native: Vec::new(), is_cut })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_file_line_and_function() {
        let of = |name| {
            let code = code(1, name);
            (code.file.clone(), code.line(0), code.function)
        };
        assert_eq!(of("a/b(1).py(12): f"), ("a/b(1).py".into(), Some(12), "f".into()));
        assert_eq!(of("<built-in function len>"), (BUILT_IN.into(), None, "<built-in function len>".into()));
        assert_eq!(of("nn.Module: Linear_0"), (BUILT_IN.into(), None, "nn.Module: Linear_0".into()));
        assert_eq!(of("torch/nn/x.py(1): f").0, "python/site-packages/torch/nn/x.py");
        assert_eq!(of("threading.py(1): f").0, "python/lib/python3.x/threading.py");
        assert_eq!(of("/home/u/torch.py(1): f").0, "/home/u/torch.py");
    }

    #[test]
    fn the_innermost_function_comes_first_and_ended_ones_are_gone() {
        let mut frames = Frames::default();
        frames.add(0, 0, 100, "a(1): outer");
        frames.add(0, 10, 20, "a(2): first");
        frames.add(0, 40, 20, "a(3): second");
        frames.add(1, 0, 5, "b(1): other");
        frames.sort();
        let mut walk = frames.of_thread(0);
        assert_eq!([15, 35, 45, 200].map(|at| walk.at(at)), [vec![2, 1], vec![1], vec![3, 1], vec![]]);
        assert_eq!(frames.of_thread(1).at(1), [4]);
        assert!(frames.of_thread(7).at(1).is_empty());
    }
}
