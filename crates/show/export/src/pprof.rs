//! Sampled call stacks of the host while devices were idle, as a profile of pprof
//! (<https://github.com/google/pprof/blob/main/proto/profile.proto>).
//!
//! A sample has two values: how often its stack was sampled, and the idle time that it stands for.
//! Labels tell its account, thread and process: `pprof -tagroot account` puts them above the
//! stacks. The file is not compressed, which readers accept beside gzip.

use std::collections::HashMap;
use std::io::{self, Write};

use apex_profile::{HostFrame, Profile};
use apex_protobuf::Message;

use crate::idle_stacks::{self, Key, Sum};

/// Fields of `Profile`.
mod profile {
    pub const SAMPLE_TYPE: u32 = 1;
    pub const SAMPLE: u32 = 2;
    pub const LOCATION: u32 = 4;
    pub const FUNCTION: u32 = 5;
    pub const STRING_TABLE: u32 = 6;
    pub const PERIOD_TYPE: u32 = 11;
    pub const PERIOD: u32 = 12;
    pub const DEFAULT_SAMPLE_TYPE: u32 = 14;
}

/// Fields of `Sample`, its `Label`, and `Location` with its `Line`.
mod sample {
    pub const LOCATION_ID: u32 = 1;
    pub const VALUE: u32 = 2;
    pub const LABEL: u32 = 3;
}

/// Strings by their index in the table, whose first one is empty.
#[derive(Default)]
struct Strings {
    list: Vec<String>,
    index: HashMap<String, u64>,
}

impl Strings {
    fn index(&mut self, text: &str) -> u64 {
        if let Some(&known) = self.index.get(text) {
            return known;
        }
        let next = self.list.len() as u64;
        self.list.push(text.to_owned());
        self.index.insert(text.to_owned(), next);
        next
    }
}

/// The definitions of the file, each once.
struct Defined<'p> {
    strings: Strings,
    locations: HashMap<&'p HostFrame, u64>,
    functions: HashMap<(String, &'p str), u64>,
    out: Message,
}

impl<'p> Defined<'p> {
    fn new() -> Self {
        let mut strings = Strings::default();
        strings.index("");
        Self { strings, locations: HashMap::new(), functions: HashMap::new(), out: Message::new() }
    }

    /// A message of a kind and a unit.
    fn kind(&mut self, field: u32, kind: &str, unit: &str) {
        let (kind, unit) = (self.strings.index(kind), self.strings.index(unit));
        let mut message = Message::new();
        message.integer(1, kind).integer(2, unit);
        self.out.message(field, &message);
    }

    fn location(&mut self, frame: &'p HostFrame) -> u64 {
        if let Some(&known) = self.locations.get(frame) {
            return known;
        }
        let id = self.locations.len() as u64 + 1;
        let function = self.function(frame);
        let (mut line, mut location) = (Message::new(), Message::new());
        line.integer(1, function).integer(2, frame.frame.line.unwrap_or(0).into());
        location.integer(1, id).message(4, &line);
        self.out.message(profile::LOCATION, &location);
        self.locations.insert(frame, id);
        id
    }

    fn function(&mut self, frame: &'p HostFrame) -> u64 {
        let key = (frame.qualified_name(), frame.frame.file.as_str());
        if let Some(&known) = self.functions.get(&key) {
            return known;
        }
        let id = self.functions.len() as u64 + 1;
        let (name, file) = (self.strings.index(&key.0), self.strings.index(key.1));
        let own = self.strings.index(&frame.frame.function);
        let mut function = Message::new();
        function.integer(1, id).integer(2, name).integer(3, own).integer(4, file);
        self.out.message(profile::FUNCTION, &function);
        self.functions.insert(key, id);
        id
    }

    fn label(&mut self, sample: &mut Message, key: &str, value: &str) {
        let (key, value) = (self.strings.index(key), self.strings.index(value));
        let mut label = Message::new();
        label.integer(1, key).integer(2, value);
        sample.message(sample::LABEL, &label);
    }

    fn sample(&mut self, whole: &'p Profile, key: Key, process: Option<&String>, sum: Sum) {
        let stack = &whole.host_stacks[key.stack];
        let mut message = Message::new();
        for frame in &stack.frames {
            message.integer(sample::LOCATION_ID, self.location(frame));
        }
        message.integer(sample::VALUE, sum.samples).integer(sample::VALUE, sum.ns.round() as u64);
        self.label(&mut message, "account", key.category.name());
        self.label(&mut message, "thread", &stack.thread);
        self.label(&mut message, "process", process.unwrap_or(&stack.process));
        self.out.message(profile::SAMPLE, &message);
    }
}

/// Writes the stacks of a profile.
///
/// # Errors
/// Those of the output.
pub fn write(whole: &Profile, mut out: impl Write) -> io::Result<()> {
    let mut defined = Defined::new();
    defined.kind(profile::SAMPLE_TYPE, "samples", "count");
    defined.kind(profile::SAMPLE_TYPE, "idle", "nanoseconds");
    let sums = idle_stacks::of(whole);
    let processes = idle_stacks::processes(whole, &sums);
    for (key, sum) in sums {
        defined.sample(whole, key, processes.get(&key.process), sum);
    }
    if let Some(sampling) = &whole.host_sampling {
        defined.kind(profile::PERIOD_TYPE, "wall", "nanoseconds");
        defined.out.integer(profile::PERIOD, sampling.period_ns);
    }
    let default = defined.strings.index("idle");
    defined.out.integer(profile::DEFAULT_SAMPLE_TYPE, default);
    for text in &defined.strings.list {
        defined.out.text(profile::STRING_TABLE, text);
    }
    out.write_all(defined.out.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::super::idle_stacks::fixture;
    use super::*;
    use apex_profile::HostSampling;

    /// Fields of a message: numbers, and bytes of nested messages and texts.
    #[derive(Default)]
    struct Read<'b> {
        numbers: Vec<(u64, u64)>,
        bytes: Vec<(u64, &'b [u8])>,
    }

    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (&byte, rest) = bytes.split_first().expect("the whole number");
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }

    fn read(mut bytes: &[u8]) -> Read<'_> {
        let mut message = Read::default();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let value = varint(&mut bytes);
            match key & 7 {
                0 => message.numbers.push((key >> 3, value)),
                2 => {
                    let (part, rest) = bytes.split_at(value as usize);
                    bytes = rest;
                    message.bytes.push((key >> 3, part));
                }
                other => panic!("wire type {other}"),
            }
        }
        message
    }

    impl<'b> Read<'b> {
        fn number(&self, field: u64) -> u64 {
            self.numbers.iter().find(|(of, _)| *of == field).map_or(0, |(_, value)| *value)
        }

        fn all(&self, field: u64) -> Vec<u64> {
            self.numbers.iter().filter(|(of, _)| *of == field).map(|(_, value)| *value).collect()
        }

        fn messages(&self, field: u32) -> Vec<Read<'b>> {
            let those = self.bytes.iter().filter(|(of, _)| *of == u64::from(field));
            those.map(|(_, bytes)| read(bytes)).collect()
        }
    }

    #[test]
    fn samples_have_their_stack_values_and_labels() {
        let sampling = HostSampling { period_ns: 10_000_000, ..HostSampling::default() };
        let whole = Profile { host_sampling: Some(sampling), ..fixture::profile() };
        let mut out = Vec::new();
        write(&whole, &mut out).unwrap();
        let file = read(&out);
        let strings: Vec<&str> = file
            .bytes
            .iter()
            .filter(|(field, _)| *field == u64::from(profile::STRING_TABLE))
            .map(|(_, bytes)| str::from_utf8(bytes).unwrap())
            .collect();
        let text = |index: u64| strings[index as usize];
        assert_eq!(strings[0], "");
        let kinds: Vec<_> = file
            .messages(profile::SAMPLE_TYPE)
            .iter()
            .map(|kind| (text(kind.number(1)), text(kind.number(2))))
            .collect();
        assert_eq!(kinds, [("samples", "count"), ("idle", "nanoseconds")]);
        assert_eq!(file.number(profile::PERIOD.into()), 10_000_000);
        assert_eq!(text(file.number(profile::DEFAULT_SAMPLE_TYPE.into())), "idle");
        let functions = file.messages(profile::FUNCTION);
        let locations = file.messages(profile::LOCATION);
        let frame = |id: u64| {
            let location = locations.iter().find(|location| location.number(1) == id).expect("a location");
            let line = &location.messages(4)[0];
            let function = functions.iter().find(|of| of.number(1) == line.number(1)).expect("a function");
            format!("{} {}:{}", text(function.number(2)), text(function.number(4)), line.number(2))
        };
        let samples: Vec<_> = file
            .messages(profile::SAMPLE)
            .iter()
            .map(|one| {
                let labels = one.messages(sample::LABEL);
                let labels: Vec<&str> = labels.iter().map(|label| text(label.number(2))).collect();
                let frames: Vec<String> = one.all(1).into_iter().map(frame).collect();
                (frames, one.all(2), labels)
            })
            .collect();
        let odd = vec!["a;b\nc /a/x.py:7".to_owned()];
        let labels = |account| vec![account, "main", "python"];
        assert_eq!(samples.len(), 3);
        for expected in [
            (
                vec!["f /a/inner.py:7".to_owned(), "main /a/outer.py:7".to_owned()],
                vec![6, 6_000_000],
                labels("idle: host code"),
            ),
            (odd.clone(), vec![2, 2_000_000], labels("idle: host code")),
            (odd, vec![3, 3_000_000], labels("idle: launch calls")),
        ] {
            assert!(samples.contains(&expected), "{expected:?} in {samples:?}");
        }
        assert_eq!((locations.len(), functions.len()), (3, 3), "each is there once");
    }

    #[test]
    fn a_profile_without_samples_is_a_file_without_samples() {
        let mut out = Vec::new();
        write(&Profile::default(), &mut out).unwrap();
        assert!(read(&out).messages(profile::SAMPLE).is_empty());
    }
}
