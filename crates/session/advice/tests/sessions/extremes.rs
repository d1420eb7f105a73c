//! Sessions that hold any numbers at all, extreme ones above all: nothing panics, and what comes
//! out is finite.
//!
//! The cases are drawn from a fixed seed, so a fault is found in every run or in none.

use crate::profile;
use apex_profile::Profile;
use apex_trace::definition::{Config, Definition, Device, Function, Graph};
use apex_trace::layout::{Call, CallClass, GraphLaunch, Launch, MemoryKind, Slots, Timing, flags};
use cuda_launch::{Carveout, FunctionAttributes, LaunchConfig};
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, RngAlgorithm, TestRng, TestRunner};
use serde_json::Value;
use test_session::Recording;

/// Sessions that are tried.
const SESSIONS: u32 = 150;

/// Any record: identifiers, classes and kinds that were never defined included.
#[derive(Clone, Debug)]
enum Record {
    Launch(Launch),
    Graph(GraphLaunch),
    Timing(Timing),
    Call(Call),
}

impl Record {
    fn write(&self, program: &mut Recording) {
        match self {
            Self::Launch(record) => program.write(record),
            Self::Graph(record) => program.write(record),
            Self::Timing(record) => program.write(record),
            Self::Call(record) => program.write(record),
        }
    }
}

fn word() -> impl Strategy<Value = u64> {
    let extremes = [0, 1, u64::from(u32::MAX), 1 << 63, u64::MAX - 1, u64::MAX];
    prop_oneof![2 => prop::sample::select(extremes.to_vec()), 1 => any::<u64>()]
}

fn half() -> impl Strategy<Value = u32> {
    let extremes = [0, 1, 31, 33, 1 << 16, i32::MAX as u32, u32::MAX - 1, u32::MAX];
    prop_oneof![2 => prop::sample::select(extremes.to_vec()), 1 => any::<u32>()]
}

fn record() -> impl Strategy<Value = Record> {
    let flags = prop_oneof![Just(0), Just(flags::ASYNC), Just(flags::STREAM_WAS_IDLE), any::<u16>()];
    let numbers = (0u32..6, 0u32..5, 0u32..3, flags, half(), word());
    (0u8..6, numbers, any::<[u8; 3]>(), [word(), word(), word(), word()]).prop_map(
        |(sort, (id, stream, result, flags, duration, start), kinds, words)| {
            let start = if sort % 2 == 0 { start } else { start >> 30 };
            let (api, result) = (id % 3, result / 2);
            match sort {
                0 => {
                    let mut head = Launch::head(flags, start, start);
                    head.duration = duration;
                    Record::Launch(Launch { head, config: id, stream, result, api })
                }
                1 => {
                    let mut head = GraphLaunch::head(flags, start, start);
                    head.duration = duration;
                    Record::Graph(GraphLaunch { head, graph: id, stream, result, api })
                }
                2 => {
                    let mut head = Timing::head(flags, start, start);
                    head.duration = duration;
                    Record::Timing(Timing { head, config: id, stream, raw_ns: words[0] })
                }
                _ => {
                    let mut head = Call::head(flags, start, start);
                    head.duration = duration;
                    let [class, memory, source_memory] = kinds.map(|kind| kind % 14);
                    let [bytes, address, source, object] = words;
                    let (address, object) = (address % 4, object % 4);
                    Record::Call(Call {
                        head,
                        api,
                        stream,
                        result,
                        class,
                        memory,
                        source_memory,
                        reserved: 0,
                        bytes,
                        address,
                        source,
                        object,
                    })
                }
            }
        },
    )
}

/// A second device and functions, configurations and graphs of any numbers.
#[derive(Clone, Debug)]
struct Definitions {
    attributes: Vec<(u32, i32)>,
    resources: [u32; 5],
    configs: [[u32; 7]; 3],
    nodes: [u32; 3],
}

fn definitions() -> impl Strategy<Value = Definitions> {
    let ids = [1u32, 8, 10, 12, 16, 39, 81, 82, 97, 106, 111];
    let attribute = (prop::sample::select(ids.to_vec()), half().prop_map(u32::cast_signed));
    let config = || [half(), half(), half(), half(), half(), half(), half()];
    (
        prop::collection::vec(attribute, 0..11),
        [half(), half(), half(), half(), half()],
        [config(), config(), config()],
        [half(), half(), half()],
    )
        .prop_map(|(mut attributes, resources, configs, nodes)| {
            attributes.extend([(75, 9), (76, 0)]);
            Definitions { attributes, resources, configs, nodes }
        })
}

impl Definitions {
    fn write(&self, program: &mut Recording) {
        // It takes the place of the recording's device in its context.
        program.define(Definition::Device(Device {
            id: 1,
            name: "odd".to_owned(),
            memory_bytes: u64::MAX,
            attributes: self.attributes.clone(),
            ..Device::default()
        }));
        let [registers, static_shared, max_threads, max_dynamic_shared, dynamic_shared] = self.resources;
        let attributes = FunctionAttributes {
            registers,
            static_shared_bytes: static_shared,
            max_threads_per_block: max_threads,
            max_dynamic_shared_bytes: Some(max_dynamic_shared),
            carveout: Carveout::from_attribute(registers.cast_signed()),
            ..FunctionAttributes::default()
        };
        program.define(Definition::Function(Function {
            id: 1,
            name: "_Z1fv".to_owned(),
            attributes: Some(attributes),
        }));
        for (id, &[x, y, z, a, b, c, cluster]) in (1..).zip(&self.configs) {
            program.define(Definition::Config(Config {
                id,
                function: 1,
                context: 1,
                launch: LaunchConfig {
                    grid: [x, y, z].into(),
                    block: [a, b, c].into(),
                    cluster: [cluster; 3].into(),
                    dynamic_shared_bytes: dynamic_shared,
                },
                ..Config::default()
            }));
        }
        let kernels = vec![(1, self.nodes[0]), (2, self.nodes[1]), (77, 1)];
        program.define(Definition::Graph(Graph { id: 1, kernels, opaque: 1, ..Graph::default() }));
        let kernels = vec![(3, self.nodes[2])];
        program.define(Definition::Graph(Graph { id: 2, kernels, ..Graph::default() }));
    }
}

/// Advice and a comparison with itself, which have neither NaN nor infinities: JSON has no number
/// for them.
fn judge(profile: &Profile) {
    let advice = apex_advice::advise(profile, &apex_advice::Options::default());
    assert!(advice.verdict.saving_of_job.is_none_or(|saving| saving.value <= 1.0));
    let run = apex_advice::Run { job: profile, profile, advice: &advice };
    let compared = apex_advice::compare(&[run, run], &[run]);
    numbers_are_finite(&format!("{:?}", (profile, &advice, &compared)));
    predictions_have_intervals(&serde_json::to_value((profile, &advice, &compared)).expect("serialises"));
}

/// No number outside of strings is NaN or infinite.
fn numbers_are_finite(debug: &str) {
    let text = debug.replace("\\\\", "").replace("\\\"", "");
    let outside = text.split('"').step_by(2);
    for word in outside.flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric())) {
        assert!(!["NaN", "inf"].contains(&word), "{debug}");
    }
}

/// Every predicted figure has an interval that holds its value.
fn predictions_have_intervals(value: &Value) {
    match value {
        Value::Object(members) => {
            if members.get("provenance").is_some_and(|provenance| provenance == "predicted") {
                let number =
                    |name: &str| members[name].as_f64().unwrap_or_else(|| panic!("no {name}: {value}"));
                assert!(number("low") <= number("value") && number("value") <= number("high"), "{value}");
            }
            members.values().for_each(predictions_have_intervals);
        }
        Value::Array(values) => values.iter().for_each(predictions_have_intervals),
        _ => {}
    }
}

#[test]
fn no_records_make_it_panic() {
    let seed = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Cases::with_cases(SESSIONS), seed);
    let sessions = (definitions(), prop::collection::vec(record(), 0..300));
    let tried = runner.run(&sessions, |(definitions, records)| {
        judge(&profile(|program| {
            definitions.write(program);
            records.iter().for_each(|record| record.write(program));
        }));
        Ok(())
    });
    tried.expect("no session makes it panic");
}

#[test]
fn bytes_of_pageable_copies_saturate() {
    let profile = profile(|program| {
        for (to, from) in
            [(MemoryKind::Device, MemoryKind::Pageable), (MemoryKind::Pageable, MemoryKind::Device)]
        {
            program.copy(to, from, u64::MAX, true, 5_000);
        }
    });
    let advice = apex_advice::advise(&profile, &apex_advice::Options::default());
    let finding = advice.findings.iter().find(|finding| finding.slug == "pageable-async-copy");
    let evidence = &finding.expect("two such copies").evidence;
    let bytes = evidence.iter().find(|evidence| evidence.name == "bytes copied").expect("they are told");
    assert_eq!(bytes.figure.value, u64::MAX as f64);
}

#[test]
fn grids_of_more_blocks_than_fit_a_word_saturate() {
    let profile = profile(|program| {
        let function = program.function("_Z1fv");
        program.define(Definition::Config(Config {
            id: 1,
            function,
            context: 1,
            launch: LaunchConfig::new([u32::MAX; 3], [u32::MAX; 3]),
            ..Config::default()
        }));
        program.launch(1, 1);
        program.launch_with(1, 1, flags::COOPERATIVE, 0);
    });
    assert_eq!((profile.kernels[0].blocks(), profile.kernels[0].threads()), (u64::MAX, u64::MAX));
    judge(&profile);
}

#[test]
fn kernels_of_graphs_saturate() {
    let profile = profile(|program| {
        let function = program.function("_Z1fv");
        let config = program.config(function, 1, 32);
        let kernels = vec![(config, u32::MAX); 4];
        program.define(Definition::Graph(Graph { id: 1, kernels, ..Graph::default() }));
        for _ in 0..3 {
            program.graph_launch(1, 1);
        }
        let class = CallClass::Copy;
        program.call("cuMemcpy", class, u64::from(u32::MAX), Call { bytes: u64::MAX, ..Call::default() });
    });
    assert_eq!(profile.totals.graph_kernels, 12 * u64::from(u32::MAX));
    judge(&profile);
}
