//! Ranges of the program: what ran inside of them.

use apex_profile::{Builder, Profile, Range};
use apex_trace::definition::{self, Definition};
use apex_trace::layout::{RangeChange, Slots, flags};
use test_session::{LEGACY, Recording};

fn define(program: &Recording, id: u32, parent: u32, domain: &str, name: &str) {
    let (domain, name) = (domain.to_owned(), name.to_owned());
    program.define(Definition::Range(definition::Range { id, parent, domain, name }));
}

fn change(program: &mut Recording, flags: u16, range: u32, changed: u32, instance: u64) {
    let head = RangeChange::head(flags, program.now, program.now);
    program.write(&RangeChange { head, range, changed, instance });
}

fn begin(program: &mut Recording, range: u32) {
    change(program, flags::RANGE_BEGUN, range, range, 0);
}

fn end(program: &mut Recording, range: u32, now_in: u32) {
    change(program, flags::RANGE_ENDED, now_in, range, 0);
}

/// Three steps of two launches that take 5 µs and of which the device waits 20 µs for each second
/// one.
fn steps(program: &mut Recording) {
    define(program, 1, 0, "", "step");
    define(program, 2, 1, "model", "forward");
    define(program, 3, 0, "", "whole");
    let function = program.function("gelu");
    let config = program.config(function, 132, 256);
    change(program, flags::RANGE_BEGUN | flags::PROCESS_WIDE, 0, 3, 77);
    for _ in 0..3 {
        begin(program, 1);
        program.launch(config, LEGACY);
        begin(program, 2);
        program.now += 25_000;
        program.timed(config, LEGACY, 5_000);
        end(program, 2, 1);
        program.now += 1_000;
        end(program, 1, 0);
    }
    change(program, flags::RANGE_ENDED | flags::PROCESS_WIDE, 0, 3, 77);
    // After the range has ended, again, and of nothing that is known.
    change(program, flags::RANGE_ENDED | flags::PROCESS_WIDE, 0, 3, 77);
    end(program, 2, 0);
    begin(program, 99);
    program.launch(config, LEGACY);
}

fn builder(program: impl FnOnce(&mut Recording)) -> Builder {
    test_session::of_program(program, |session| {
        let mut builder = Builder::default();
        builder.add_session(session);
        builder
    })
}

fn named<'p>(profile: &'p Profile, name: &str) -> &'p Range {
    profile.ranges.iter().find(|range| range.name == name).unwrap_or_else(|| panic!("no range {name}"))
}

#[test]
fn launches_count_for_their_range_and_for_those_around_it() {
    let profile = builder(steps).finish();
    let names: Vec<_> = profile.ranges.iter().map(|range| (range.name.as_str(), range.parent)).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    let (step, forward) = (named(&profile, "step"), named(&profile, "forward"));
    assert_eq!((step.count, step.launches, step.host_ns > 75_000.0), (3, 6, true));
    assert_eq!((forward.count, forward.launches, forward.domain.as_str()), (3, 3, "model"));
    assert_eq!(profile.ranges[forward.parent.unwrap()].name, "step");
    assert!(step.host_ns > forward.host_ns);
    let (gpu, idle) = (forward.gpu_time_ns.unwrap(), forward.idle_ns.unwrap());
    assert_eq!((gpu.value, forward.timed_launches), (15_000.0, 3));
    assert!((50_000.0..80_000.0).contains(&idle.value), "{idle:?}");
    assert!(step.gpu_time_ns.unwrap().value >= 29_000.0 && step.idle_ns.unwrap().value >= idle.value);
    let whole = profile.ranges.iter().find(|range| range.is_process_wide).unwrap();
    assert_eq!((whole.name.as_str(), whole.count, whole.launches, whole.idle_ns), ("whole", 1, 6, None));
}

#[test]
fn ranges_of_two_processes_are_one() {
    let mut both = builder(steps);
    both.merge(builder(steps));
    let profile = both.finish();
    assert_eq!(profile.ranges.len(), 3);
    assert_eq!((named(&profile, "step").count, named(&profile, "forward").launches), (6, 6));
}

#[test]
fn ranges_that_share_a_name_are_together() {
    let profile = test_session::of_program(numbered, Profile::from_session);
    let found: Vec<_> = profile.ranges.iter().map(|range| (range.name.as_str(), range.launches)).collect();
    assert_eq!(found, [("step #", 6), ("forward", 3), ("layer 1", 1)]);
}

fn numbered(program: &mut Recording) {
    for id in 1..=3 {
        define(program, id, 0, "", &format!("step {id}"));
        define(program, 3 + id, id, "", "forward");
    }
    define(program, 7, 0, "", "step #");
    define(program, 8, 7, "", "layer 1");
    let function = program.function("gelu");
    let config = program.config(function, 132, 256);
    for range in [1, 4, 5, 6, 7, 8] {
        begin(program, range);
        program.launch(config, LEGACY);
    }
}
