//! The profile of two record streams together is the merge of what builders hold of each.

use std::collections::BTreeMap;

use apex_profile::{Builder, Profile};
use apex_trace::definition::{Definition, Device};
use apex_trace::layout::{MemoryKind, flags};
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, RngAlgorithm, TestRng, TestRunner};
use serde_json::Value;
use tempfile::TempDir;
use test_session::{LEGACY, NON_BLOCKING, Recording};

/// Sessions that are tried.
const SESSIONS: u32 = 40;
/// Kernels that the processes of a session share.
const KERNELS: usize = 3;
/// Relative error of a quantile of a sketch, as `sketch` states it.
const QUANTILE_ERROR: f64 = 0.016;
/// Relative error of a sum of floating-point numbers that are added in another order.
const ROUNDING: f64 = 1e-9;

/// The next step of a process.
#[derive(Clone, Debug)]
enum Step {
    Launch { kernel: usize, cpu_ns: u64 },
    Timed { kernel: usize, gpu_ns: u64 },
    Captured { kernel: usize },
    Synchronise { cpu_ns: u64 },
    Allocate { bytes: u64 },
    Copy { bytes: u64, asynchronous: bool },
    Wait { ns: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let kernel = || 0..KERNELS;
    prop_oneof![
        4 => (kernel(), 1_000u64..100_000).prop_map(|(kernel, cpu_ns)| Step::Launch { kernel, cpu_ns }),
        4 => (kernel(), 500u64..2_000_000).prop_map(|(kernel, gpu_ns)| Step::Timed { kernel, gpu_ns }),
        1 => kernel().prop_map(|kernel| Step::Captured { kernel }),
        1 => (100u64..1_000_000).prop_map(|cpu_ns| Step::Synchronise { cpu_ns }),
        1 => (1u64..1 << 30).prop_map(|bytes| Step::Allocate { bytes }),
        1 => (1u64..1 << 30, any::<bool>()).prop_map(|(bytes, asynchronous)| Step::Copy { bytes, asynchronous }),
        1 => (1u64..600_000_000).prop_map(|ns| Step::Wait { ns }),
    ]
}

/// One process: which kernels it defines first, and what it does.
type Program = (usize, Vec<Step>);

fn run(dir: &TempDir, (turn, steps): &Program) {
    let mut process = Recording::new(dir.path());
    let names = ["first", "second", "third"];
    let mut configs = [0; KERNELS];
    // Identifiers differ between the processes.
    for kernel in (0..KERNELS).map(|at| (at + turn) % KERNELS) {
        let function = process.function(names[kernel]);
        configs[kernel] = process.config(function, 132 * (kernel as u32 + 1), 256);
        // As the recorder does, every process times the first launch of each kernel.
        process.timed(configs[kernel], LEGACY, 40_000);
    }
    for (address, step) in (0x1000..).zip(steps) {
        match *step {
            Step::Launch { kernel, cpu_ns } => process.launch_taking(configs[kernel], LEGACY, cpu_ns),
            Step::Timed { kernel, gpu_ns } => process.timed(configs[kernel], NON_BLOCKING, gpu_ns),
            Step::Captured { kernel } => {
                process.launch_with(configs[kernel], LEGACY, flags::CAPTURED, 0);
            }
            Step::Synchronise { cpu_ns } => process.synchronise(LEGACY, cpu_ns),
            Step::Allocate { bytes } => process.allocate(MemoryKind::Device, address, bytes, 9_000),
            Step::Copy { bytes, asynchronous } => {
                process.copy(MemoryKind::Device, MemoryKind::Pageable, bytes, asynchronous, 7_000)
            }
            Step::Wait { ns } => process.now += ns,
        }
    }
    process.exit();
}

/// Both are the same but for rounding.
fn assert_same(whole: &Value, merged: &Value, path: &str) {
    match (whole, merged) {
        (Value::Object(a), Value::Object(b)) => {
            assert!(a.keys().eq(b.keys()), "{path}: other members");
            a.iter().for_each(|(name, value)| assert_same(value, &b[name], &format!("{path}.{name}")));
        }
        (Value::Array(a), Value::Array(b)) => {
            assert_eq!(a.len(), b.len(), "{path}: other lengths");
            a.iter().zip(b).enumerate().for_each(|(at, (a, b))| assert_same(a, b, &format!("{path}[{at}]")));
        }
        (Value::Number(a), Value::Number(b)) if a.is_f64() && b.is_f64() => {
            let (a, b) = (a.as_f64().expect("a number"), b.as_f64().expect("a number"));
            assert!((a - b).abs() <= ROUNDING * a.abs().max(b.abs()), "{path}: {a} in the whole, {b} merged");
        }
        _ => assert_eq!(whole, merged, "{path}"),
    }
}

/// CPU times of the launch calls of each kernel, ascending.
fn launch_calls(programs: &[Program]) -> BTreeMap<&'static str, Vec<u64>> {
    let mut calls: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    let names = ["first", "second", "third"];
    for (_, steps) in programs {
        for (kernel, name) in names.into_iter().enumerate() {
            let of = steps.iter().filter_map(|step| match *step {
                Step::Launch { kernel: of, cpu_ns } if of == kernel => Some(cpu_ns),
                Step::Timed { kernel: of, .. } if of == kernel => Some(4_000),
                _ => None,
            });
            calls.entry(name).or_default().extend(of.chain([4_000]));
        }
    }
    calls.values_mut().for_each(|calls| calls.sort_unstable());
    calls
}

/// Quantiles are those of all launches, within the error of a sketch.
fn assert_quantiles(profile: &Profile, programs: &[Program]) {
    let calls = launch_calls(programs);
    for kernel in &profile.kernels {
        let calls = &calls[&*kernel.symbol];
        assert_eq!(kernel.cpu.count, calls.len() as u64);
        for (quantile, shown) in
            [(0.1, kernel.cpu.p10_ns), (0.5, kernel.cpu.median_ns), (0.9, kernel.cpu.p90_ns)]
        {
            let rank = ((calls.len() as f64 * quantile).ceil() as usize).clamp(1, calls.len());
            let exact = calls[rank - 1] as f64;
            assert!((shown - exact).abs() <= QUANTILE_ERROR * exact, "{quantile}: {shown}, exactly {exact}");
        }
    }
}

#[test]
fn merged_builders_give_the_profile_of_both_streams() {
    let seed = TestRng::from_seed(RngAlgorithm::ChaCha, &[11; 32]);
    let mut runner = TestRunner::new_with_rng(Cases::with_cases(SESSIONS), seed);
    let programs = prop::collection::vec((0..KERNELS, prop::collection::vec(step(), 0..60)), 1..6);
    let split = prop::collection::vec(any::<bool>(), 6);
    let tried = runner.run(&(programs, split), |(programs, split)| {
        let dir = TempDir::new().expect("a temporary directory");
        programs.iter().for_each(|program| run(&dir, program));
        let session = test_session::open(&dir);
        // What is wrong with the session itself (no description, say) is told of the whole alone.
        let mut whole = Profile::from_session(&session);
        // Builders do not know the ranks of a session.
        whole.processes.iter_mut().for_each(|process| process.rank = None);
        let of_session: Vec<_> = session.problems.iter().map(ToString::to_string).collect();
        whole.recorder.problems.retain(|problem| !of_session.contains(problem));
        let mut parts = [Builder::default(), Builder::default()];
        for (process, &second) in session.processes.iter().zip(&split) {
            parts[usize::from(second)].add_process(process);
        }
        let [mut merged, second] = parts;
        merged.merge(second);
        let merged = merged.finish();
        assert_quantiles(&merged, &programs);
        let value = |profile: &Profile| serde_json::to_value(profile).expect("serialises");
        assert_same(&value(&whole), &value(&merged), "profile");
        Ok(())
    });
    tried.expect("the profile of both streams");
}

#[test]
fn a_process_without_samples_takes_the_times_of_those_before_it() {
    let dir = TempDir::new().expect("a temporary directory");
    for timed in [true, false] {
        let mut process = Recording::new(dir.path());
        let function = process.function("kernel");
        let config = process.config(function, 132, 256);
        match timed {
            true => process.timed(config, LEGACY, 50_000),
            false => process.launch_taking(config, LEGACY, 4_000),
        }
        process.exit();
    }
    let session = test_session::open(&dir);
    let shares = |profile: Profile| profile.activities.iter().map(|a| a.timed_share).collect::<Vec<_>>();
    assert_eq!(shares(Profile::from_session(&session)), [1.0, 1.0]);
    let [mut first, mut second] = [Builder::default(), Builder::default()];
    first.add_process(&session.processes[0]);
    second.add_process(&session.processes[1]);
    first.merge(second);
    assert_eq!(shares(first.finish()), [1.0, 0.0]);
}

#[test]
fn a_device_has_the_ordinals_that_processes_give_it() {
    for (ordinals, wanted) in [([1, 1], &[1][..]), ([1, 0], &[0, 1]), ([0, 0], &[0])] {
        let dir = TempDir::new().expect("a temporary directory");
        for ordinal in ordinals {
            let process = Recording::new(dir.path());
            let device =
                Device { id: 9, ordinal, name: "another".into(), uuid: [9; 16], ..Device::default() };
            process.define(Definition::Device(device));
            process.exit();
        }
        let profile = Profile::from_session(&test_session::open(&dir));
        let found = profile.devices.iter().find(|device| device.name == "another").expect("it is listed");
        assert_eq!(found.ordinals, wanted, "{ordinals:?}");
    }
}
