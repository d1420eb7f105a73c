//! Launches in other blocks on a driver without a GPU: what the driver gets, and what is recorded.

mod support;

use apex_trace::control::{Settings, TimingMode};
use apex_trace::definition::Config;
use apex_trace::layout::ReshapeState;
use apex_trace::{Event, Process};
use cuda_launch::{Dim3, LaunchConfig};
use launch_condition::{Apart, Bound, Choice, Condition, Plan, PlannedKernel, Region, Sum, Term, code_hash};
use std::collections::BTreeMap;
use support::{Recording, finished, launches};
use test_process::Command;

/// The PTX of the program `shaped`, as the program has it.
fn ptx() -> Vec<u8> {
    let source = include_str!("../../../../testing/driver-client/src/shaped.rs");
    let (_, rest) = source.split_once("CStr = c\"").expect("the PTX begins");
    rest.split_once("\";").expect("it ends").0.as_bytes().to_vec()
}

/// What must hold of `to[i] = f(from[i])` for `i` below `n`.
fn condition() -> Condition {
    let n = Term::Parameter { offset: 16, bytes: 4, signed: true };
    let region = |offset| Region {
        start: Sum::of(1, Term::Parameter { offset, bytes: 8, signed: false }),
        bytes: Some(Sum::of(4, n)),
    };
    Condition {
        bounds: vec![Bound { axis: 0, limit: Sum::of(1, n) }],
        regions: vec![region(0), region(8)],
        apart: vec![Apart { first: 0, second: 1, or_same: true }],
        ..Condition::default()
    }
}

/// A plan for 1,000 values in blocks of 16.
fn plan(blocks: &[u32], draws: bool) -> Plan {
    let blocks = blocks.iter().map(|&threads| threads.into()).collect();
    let choice = Choice { asked: 16.into(), size_class: 9, blocks, draws };
    let kernel = PlannedKernel {
        code: code_hash(&ptx()),
        name: "step_20000".into(),
        condition: condition(),
        choices: vec![choice],
    };
    Plan { device: "Fake GPU".into(), driver_version: 13_000, kernels: vec![kernel], pairs: Vec::new() }
}

fn planned(recording: &Recording, program: &str, plan: &Plan) -> Command {
    std::fs::write(recording.path().join(Plan::FILE), plan.to_bytes()).expect("a plan");
    recording.client(program)
}

/// Launches by configuration: what was launched, and the block that the program asked for.
fn configurations(process: &Process) -> BTreeMap<(String, Option<Dim3>), usize> {
    let mut counts = BTreeMap::new();
    for launch in launches(process) {
        assert_eq!(launch.result, 0);
        let config: &Config = process.definitions.config(launch.config).expect("a configuration");
        let asked = config.asked.map(|(grid, block)| {
            assert_eq!(grid, 63.into());
            block
        });
        *counts.entry((config.launch.to_string(), asked)).or_default() += 1;
    }
    counts
}

fn shown(grid: u32, block: u32) -> String {
    LaunchConfig::new(grid, block).to_string()
}

#[test]
fn launches_are_made_in_the_blocks_of_the_plan_and_the_record_has_both() {
    for fast in ["", "queue", "batch"] {
        let recording = Recording::untimed();
        let mut command = planned(&recording, "shaped 300 1000 0", &plan(&[256], false));
        command.env("APEX_FAST", fast).env("APEX_FAST_ALWAYS", "1");
        finished(&mut command);
        let process = recording.process();
        let expected = BTreeMap::from([((shown(4, 256), Some(16.into())), 300)]);
        assert_eq!(configurations(&process), expected, "--fast={fast}");
        assert_eq!((process.reshape_state, process.reshape_refused), (ReshapeState::On, 0));
    }
}

#[test]
fn launches_draw_and_each_is_made_once() {
    let recording = Recording::untimed();
    finished(&mut planned(&recording, "shaped 300 1000 0", &plan(&[64, 256], true)));
    let asked = Some(16.into());
    let expected = BTreeMap::from([
        ((shown(63, 16), None), 100),
        ((shown(16, 64), asked), 100),
        ((shown(4, 256), asked), 100),
    ]);
    assert_eq!(configurations(&recording.process()), expected);
}

#[test]
fn times_belong_to_the_blocks_that_were_launched() {
    let recording = Recording::new(Settings { timing: TimingMode::All, ..Settings::default() });
    let mut command = planned(&recording, "shaped 300 1000 0", &plan(&[256], true));
    finished(command.env("FAKE_LEAST_THREADS", "64"));
    let process = recording.process();
    let mut times: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for record in process.records() {
        if let Event::Timing(timing) = record.event {
            let config = process.definitions.config(timing.config).expect("a configuration");
            times.entry(config.launch.block.x).or_default().push(timing.raw_ns);
        }
    }
    assert!(times[&16].len() > 100 && times[&256].len() > 100, "{times:?}");
    assert!(times[&16].iter().all(|&ns| ns > 80_000), "{times:?}");
    assert!(times[&256].iter().all(|&ns| ns < 40_000), "{times:?}");
}

#[test]
fn what_a_plan_is_not_for_is_left_alone() {
    let right = plan(&[256], false);
    let other = |change: fn(&mut PlannedKernel)| {
        let mut plan = plan(&[256], false);
        change(&mut plan.kernels[0]);
        plan
    };
    for (what, plan, state) in [
        ("device", Plan { device: "Another".into(), ..right.clone() }, ReshapeState::OtherDevice),
        ("driver", Plan { driver_version: 12_080, ..right.clone() }, ReshapeState::OtherDriver),
        ("code", other(|kernel| kernel.code += 1), ReshapeState::Unused),
        ("name", other(|kernel| kernel.name.push('x')), ReshapeState::Unused),
        ("block", other(|kernel| kernel.choices[0].asked = 32.into()), ReshapeState::Unused),
        ("size", other(|kernel| kernel.choices[0].size_class = 10), ReshapeState::Unused),
        ("too large", other(|kernel| kernel.choices[0].blocks = vec![2048.into()]), ReshapeState::Failed),
        ("no axis", other(|kernel| kernel.condition.bounds[0].axis = 3), ReshapeState::Failed),
    ] {
        let recording = Recording::untimed();
        finished(&mut planned(&recording, "shaped 30 1000 0", &plan));
        let process = recording.process();
        assert_eq!(process.reshape_state, state, "another {what}");
        assert_eq!(configurations(&process), BTreeMap::from([((shown(63, 16), None), 30)]), "{what}");
    }
    let recording = Recording::untimed();
    std::fs::write(recording.path().join(Plan::FILE), &right.to_bytes()[..100]).expect("a damaged plan");
    recording.run("shaped 30 1000 0");
    assert_eq!(recording.process().reshape_state, ReshapeState::Failed);
}

#[test]
fn a_launch_for_which_the_condition_fails_is_counted_and_left_alone() {
    let recording = Recording::untimed();
    let mut plan = plan(&[256], false);
    plan.kernels[0].condition.at_most.push((Sum::constant(2), Sum::constant(1)));
    finished(&mut planned(&recording, "shaped 30 1000 0", &plan));
    let process = recording.process();
    assert_eq!((process.reshape_state, process.reshape_refused), (ReshapeState::Unused, 30));
}

#[test]
fn programs_do_with_a_plan_what_they_do_without() {
    for program in ["forms", "streams", "reload 5", "capture", "graphs", "calls", "contexts", "callback"] {
        let expected = finished(&mut Recording::untimed().client(program));
        let recording = Recording::untimed();
        assert_eq!(finished(&mut planned(&recording, program, &plan(&[256], false))), expected, "{program}");
    }
}

#[test]
fn a_program_that_maps_memory_ends_it() {
    let recording = Recording::untimed();
    finished(&mut planned(&recording, "shaped-mapped", &plan(&[256], false)));
    let process = recording.process();
    let expected = BTreeMap::from([((shown(4, 256), Some(16.into())), 10), ((shown(63, 16), None), 10)]);
    assert_eq!((configurations(&process), process.reshape_state), (expected, ReshapeState::Closed));
}
