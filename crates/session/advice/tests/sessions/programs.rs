//! Advice on whole programs: one with the faults, one without.

use std::collections::BTreeSet;

use crate::profile;
use apex_advice::{Advice, Options, advise};
use apex_profile::Profile;
use apex_trace::layout::MemoryKind;
use test_session::{BLOCKING, LEGACY, NON_BLOCKING, Recording};

fn advice_on(program: impl FnOnce(&mut Recording)) -> Advice {
    advise(&profile(program), &Options::default())
}

fn rules(advice: &Advice) -> BTreeSet<&str> {
    advice.findings.iter().map(|finding| finding.rule.as_str()).collect()
}

/// Large kernels that keep the device busy, pinned asynchronous copies, one synchronisation at the
/// end.
fn good(program: &mut Recording) {
    let function = program.function("gemm");
    let config = program.config(function, 132 * 8 * 20, 256);
    program.allocate(MemoryKind::Device, 0x1000, 1 << 30, 90_000);
    for _ in 0..1000 {
        program.copy(MemoryKind::Device, MemoryKind::Pinned, 1 << 20, true, 3_000);
        program.timed(config, NON_BLOCKING, 400_000);
    }
    program.synchronise(NON_BLOCKING, 1000 * 400_000);
}

/// Everything that launch records, calls and times can show.
fn bad(program: &mut Recording) {
    let names = ["odd", "tiny", "step_a", "step_b", "few", "tail"];
    let [odd, tiny, step_a, step_b, few, tail] = names.map(|name| program.function(name));
    let odd = program.config(odd, 5_000, 100);
    let tiny = program.config(tiny, 4, 1024);
    let (step_a, step_b) = (program.config(step_a, 2_112, 256), program.config(step_b, 2_112, 256));
    let few = program.config(few, 200, 256);
    let tail = program.config(tail, 132 * 8 + 10, 256);
    program.launch(step_a, BLOCKING);
    for i in 0..150 {
        program.allocate(MemoryKind::Device, 0x1000, 16 << 20, 40_000);
        program.copy(MemoryKind::Device, MemoryKind::Pageable, 1 << 20, true, 60_000);
        program.copy(MemoryKind::Device, MemoryKind::Pageable, 1 << 20, false, 60_000);
        for config in [odd, tiny, few, tail] {
            program.timed(config, LEGACY, 3_000);
        }
        program.synchronise(LEGACY, 2_000);
        for _ in 0..10 {
            program.timed(step_a, LEGACY, 2_000);
            program.timed(step_b, LEGACY, 2_000);
        }
        program.synchronise(LEGACY, 2_000);
        program.free(0x1000, 40_000);
        if i == 70 {
            program.now += 800_000_000;
        }
    }
}

#[test]
fn the_good_program_is_excellent() {
    let advice = advice_on(good);
    assert_eq!(rules(&advice), BTreeSet::new(), "{:#?}", advice.findings);
    assert_eq!((advice.excellent.len(), advice.verdict.launches_excellent), (1, 1.0));
    // Nothing was counted, because this is no session of the CPU device, no PTX was kept, and the
    // host was not sampled.
    let lacks = |rule: &str| ["APEX-C", "APEX-P", "APEX-T87"].iter().any(|start| rule.starts_with(start));
    assert!(advice.unjudged.iter().all(|rule| lacks(&rule.rule)), "{:?}", advice.unjudged);
    assert!(advice.verdict.gpu_busy.expect("timed").value > 0.95);
}

/// Copies before the first launch take 5 ms, its call 4 µs, and then the program is killed.
#[test]
fn a_program_that_was_killed_in_its_first_launch_has_nothing_to_save() {
    for timed in [false, true] {
        let dir = tempfile::TempDir::new().expect("a temporary directory");
        let mut program = Recording::new(dir.path());
        let function = program.function("first");
        let config = program.config(function, 1056, 256);
        for _ in 0..5 {
            program.copy(MemoryKind::Device, MemoryKind::Pageable, 1 << 20, false, 1_000_000);
            program.copy(MemoryKind::Device, MemoryKind::Pageable, 1 << 20, true, 1_000_000);
        }
        if timed {
            // The first call loads the module.
            let (start, call) = (program.now, 60_000_000);
            program.launch_taking(config, LEGACY, call);
            program.timing(config, LEGACY, start, 9_000, 0);
        } else {
            program.launch(config, LEGACY);
        }
        drop(program);
        let advice = advise(&Profile::from_session(&test_session::open(&dir)), &Options::default());
        assert!(rules(&advice).contains("APEX-L19"), "it is found all the same: {:?}", rules(&advice));
        let worth = advice.verdict.saving_of_job.map_or(0.0, |saving| saving.value);
        assert_eq!(worth, 0.0, "{:#?}", advice.findings);
    }
}

#[test]
fn the_bad_program_has_every_fault() {
    let advice = advice_on(bad);
    let expected = [
        "APEX-L01", "APEX-T04", "APEX-L06", "APEX-T16", "APEX-L18", "APEX-L19", "APEX-T20", "APEX-L23",
        "APEX-L25",
    ];
    assert_eq!(rules(&advice), BTreeSet::from(expected));
    // Those of `few`; what the other kernels cost is next to nothing beside a gap of 0.8 s.
    assert!((advice.verdict.launches_with_finding - 150.0 / 3601.0).abs() < 1e-9);
}

#[test]
fn a_loop_of_short_kernels_is_launch_bound() {
    let advice = advice_on(|program| {
        let function = program.function("layer");
        let layers: Vec<u32> = (1..=20).map(|i| program.config(function, 1056 * i, 256)).collect();
        for _ in 0..200 {
            for &layer in &layers {
                program.timed(layer, LEGACY, 2_000);
                // What a framework does between two launches.
                program.now += 6_000;
            }
            program.synchronise(LEGACY, 1_500);
        }
    });
    let expected = ["APEX-T17", "APEX-T20", "APEX-L19", "APEX-T24", "APEX-L25"];
    assert!(rules(&advice).is_subset(&BTreeSet::from(expected)), "{:?}", rules(&advice));
    let named = |rule| advice.findings.iter().find(|finding| finding.rule == rule).expect("it fires");
    let (bound, graph) = (named("APEX-T24"), named("APEX-L25"));
    assert!((bound.saving.of_job.expect("known").value - 0.8).abs() < 0.02);
    assert_eq!(graph.within.as_deref(), Some("APEX-T24"));
    assert!(graph.summary.starts_with("a sequence of 20 launches"), "{}", graph.summary);
}

#[test]
fn savings_never_exceed_what_there_is() {
    let profile = profile(bad);
    let advice = advise(&profile, &Options::default());
    let saving = |host: bool| -> f64 {
        let of = advice.findings.iter().filter(|finding| (finding.scope == apex_advice::Scope::Host) == host);
        of.filter(|f| f.within.is_none()).filter_map(|f| f.saving.time_ns).map(|time| time.value).sum()
    };
    let idle = profile.activities[0].idle_share.expect("modelled").value * profile.totals.span_ns;
    assert!(saving(true) <= idle * 1.000_001, "{} of {idle}", saving(true));
    assert!(saving(false) <= profile.totals.gpu_time_ns.expect("timed").value);
    assert!(advice.verdict.saving_of_job.expect("known").value <= 1.0);
}

#[test]
fn findings_are_ranked_and_complete() {
    let advice = advice_on(bad);
    let times: Vec<f64> =
        advice.findings.iter().map_while(|f| f.saving.time_ns).map(|time| time.value).collect();
    assert!(times.is_sorted_by(|a, b| a >= b), "{times:?}");
    for finding in &advice.findings {
        assert!(
            !finding.summary.is_empty()
                && !finding.change.is_empty()
                && !finding.confidence.reason.is_empty()
        );
        assert!(finding.verify.contains("apex diff"), "{}", finding.verify);
        let known = finding.saving.time_ns.is_some();
        assert_eq!(known, finding.saving.unknown_because.is_none(), "{}: {:?}", finding.rule, finding.saving);
        let has_values =
            !finding.evidence.is_empty() || finding.kernels.iter().all(|k| !k.evidence.is_empty());
        assert!(has_values, "{} shows no values", finding.rule);
    }
}

#[test]
fn without_times_the_other_rules_still_judge() {
    let advice = advice_on(|program| {
        let function = program.function("odd");
        let config = program.config(function, 5_000, 100);
        for _ in 0..200 {
            program.launch(config, LEGACY);
        }
    });
    assert_eq!(rules(&advice), BTreeSet::from(["APEX-L01"]));
    assert!(advice.findings[0].saving.unknown_because.is_some());
    let unjudged: BTreeSet<&str> = advice.unjudged.iter().map(|rule| rule.rule.as_str()).collect();
    assert_eq!(
        unjudged,
        BTreeSet::from([
            "APEX-C31",
            "APEX-C32",
            "APEX-C33",
            "APEX-C68",
            "APEX-C79",
            "APEX-C84",
            "APEX-C86",
            "APEX-P101",
            "APEX-P102",
            "APEX-P103",
            "APEX-P104",
            "APEX-P105",
            "APEX-P106",
            "APEX-P107",
            "APEX-P108",
            "APEX-P109",
            "APEX-P111",
            "APEX-P112",
            "APEX-P113",
            "APEX-P114",
            "APEX-P115",
            "APEX-P116",
            "APEX-P117",
            "APEX-P118",
            "APEX-P119",
            "APEX-P120",
            "APEX-P121",
            "APEX-P123",
            "APEX-P124",
            "APEX-P126",
            "APEX-P132",
            "APEX-P134",
            "APEX-P136",
            "APEX-P137",
            "APEX-P138",
            "APEX-P140",
            "APEX-T04",
            "APEX-T110",
            "APEX-T16",
            "APEX-T17",
            "APEX-T20",
            "APEX-T21",
            "APEX-T24",
            "APEX-T41",
            "APEX-T60",
            "APEX-T61",
            "APEX-T62",
            "APEX-T63",
            "APEX-T64",
            "APEX-T65",
            "APEX-T66",
            "APEX-T67",
            "APEX-T69",
            "APEX-T74",
            "APEX-T77",
            "APEX-T78",
            "APEX-T82",
            "APEX-T83",
            "APEX-T87",
            "APEX-T95",
            "APEX-T130",
            "APEX-T135",
            "APEX-T139",
        ])
    );
}
