//! Advice as a whole: caps, order, suppression, selections.

use super::capping::time_of;
use super::*;
use crate::finding::Saving;
use crate::rules::fixture::{
    SMS, activity, call, called, copies, counted, idle_during, kernel_of, launched_at, memory, named,
    on_cpu_device, profile_of, profile_with, timed,
};
use apex_counts::{Direction, InstructionClass, Space};
use apex_profile::{Accounts, Activity, IdleCause, Kernel, Process, Sequence};
use apex_trace::layout::{CallClass, MemoryKind};

fn named_in<'a>(advice: &'a Advice, rule: &str) -> &'a Finding {
    advice
        .findings
        .iter()
        .find(|finding| finding.rule == rule)
        .unwrap_or_else(|| panic!("{rule} finds nothing"))
}

#[test]
fn nothing_in_nothing() {
    let advice = advise(&Profile::default(), &Options::default());
    assert!(
        advice.findings.is_empty() && advice.excellent.is_empty() && advice.unknown_suppressions.is_empty()
    );
    assert_eq!(advice.verdict, Verdict::default());
}

#[test]
fn a_good_configuration_is_excellent() {
    let profile = profile_of([timed(kernel_of(100_000, 256), 500_000.0), kernel_of(10, 100)]);
    let advice = advise(&profile, &Options::default());
    assert_eq!(advice.excellent, [0]);
    assert_eq!((advice.verdict.launches_with_finding, advice.verdict.launches_excellent), (0.5, 0.5));
}

#[test]
fn savings_on_one_kernel_compound() {
    // 2112 blocks of 100 threads are a wave: the second one has one block. APEX-L01 saves 28 of
    // 128 lanes of what APEX-T04 leaves.
    let profile = profile_of([timed(kernel_of(2113, 100), 1e6)]);
    let advice = advise(&profile, &Options::default());
    let saving = |rule| named_in(&advice, rule).saving.clone();
    let tail = saving("APEX-T04").of_kernel.expect("timed").value;
    assert!((0.4..0.6).contains(&tail), "{tail}");
    let lanes = saving("APEX-L01").time_ns.expect("timed").value;
    assert!((lanes - (1.0 - tail) * 1e9 * 28.0 / 128.0).abs() < 1.0, "{lanes}");
    assert_eq!(advice.findings[0].rule, "APEX-T04", "the largest saving comes first");
}

/// A sequence of ten launches, a thousand times, with calls that take so long in all.
fn sequence(launch_cpu_ns: f64) -> Sequence {
    Sequence { length: 10, repeats: 1000, launch_cpu_ns, ..Sequence::default() }
}

#[test]
fn kernels_that_overlap_save_time_on_the_clock() {
    // 4 s of GPU time in 1 s: what halves the kernels' time halves the second.
    let mut profile = profile_of([timed(kernel_of(66, 256), 4e6)]);
    profile.activities = vec![Activity { idle_share: None, idle_by: BTreeMap::new(), ..activity(1e9, 0.0) }];
    profile.totals.span_ns = 1e9;
    let advice = advise(&profile, &Options::default());
    let saving = &named_in(&advice, "APEX-L02").saving;
    assert!((saving.of_job.expect("timed").value - 0.5).abs() < 1e-9);
    let of_job = saving.of_job.expect("timed").value;
    assert!((Saving::faster(of_job).expect("it says something") - 2.0).abs() < 1e-9);
    assert_eq!((Saving::faster(1.0), Saving::faster(0.995)), (None, None));
    assert!((saving.of_kernel.expect("timed").value - 0.5).abs() < 1e-9);
}

#[test]
fn findings_on_the_host_save_the_idle_time_of_what_they_remove() {
    let mut profile = profile_with([idle_during(IdleCause::Transferring, 1e9, 0.2)]);
    profile.activities[0].idle_by.insert(IdleCause::Launching, 0.1e9);
    profile.sequences = vec![sequence(0.9e9)];
    profile.copies = vec![
        copies(MemoryKind::Device, MemoryKind::Pageable, true, 1_900, 1 << 20),
        copies(MemoryKind::Device, MemoryKind::Pinned, false, 1_500, 1 << 20),
    ];
    let advice = advise(&profile, &Options::default());
    let saves = |rule| time_of(named_in(&advice, rule));
    // Pinned memory is copied at 55 bytes in a nanosecond.
    let copied = 0.19e9 - 1_900.0 * f64::from(1 << 20) / 55.0;
    assert_eq!(saves("APEX-L25").round(), 0.1e9, "no more than the idle time during launch calls");
    // The idle share of the fixture is known to a tenth of its value.
    let (low, high) =
        named_in(&advice, "APEX-L25").saving.time_ns.and_then(|time| time.interval()).expect("one");
    assert!(low == 0.0 && (high - 0.11e9).abs() < 1.0, "{low} to {high}");
    assert_eq!(saves("APEX-L18").round(), copied.round(), "the larger of the two about copies");
    assert_eq!(saves("APEX-L19").round(), (0.2e9 - copied).round(), "what that one leaves");
}

#[test]
fn without_a_model_what_is_not_known_to_be_busy_is_the_limit() {
    let unknown = Accounts { span_ns: 1e9, unknown: Figure::measured(1e9), ..Accounts::default() };
    let unmodelled =
        |accounts| Activity { idle_share: None, idle_by: BTreeMap::new(), accounts, ..activity(1e9, 0.2) };
    let mut profile = profile_with([unmodelled(unknown.clone())]);
    profile.sequences = vec![sequence(0.9e9)];
    profile.copies = vec![copies(MemoryKind::Device, MemoryKind::Pageable, true, 5_000, 1 << 20)];
    let advice = advise(&profile, &Options::default());
    let saving = advice.verdict.saving_of_job.expect("a share");
    assert_eq!((saving.value, saving.interval()), (1.0, Some((0.0, 1.0))));
    let busy = Figure::measured(0.75e9);
    let half_known = Accounts { kernels: busy, unknown: Figure::measured(0.25e9), ..unknown };
    profile.activities = vec![unmodelled(half_known)];
    let advice = advise(&profile, &Options::default());
    assert_eq!(named_in(&advice, "APEX-L25").saving.of_job.expect("a share").bounds(), (0.0, 0.25));
}

#[test]
fn what_lies_within_another_finding_does_not_add() {
    let mut profile = Profile {
        kernels: vec![timed(kernel_of(10_000, 256), 2_000.0)],
        sequences: vec![sequence(0.9e9)],
        ..profile_with([activity(1e9, 0.4)])
    };
    profile.activities[0].idle_by.insert(IdleCause::Launching, 0.2e9);
    let advice = advise(&profile, &Options::default());
    let (parent, child) = (named_in(&advice, "APEX-T24"), named_in(&advice, "APEX-L25"));
    assert_eq!((parent.within.as_deref(), child.within.as_deref()), (None, Some("APEX-T24")));
    assert_eq!((time_of(parent).round(), time_of(child).round()), (0.6e9, 0.2e9));
    assert_eq!(advice.verdict.saving_of_job, parent.saving.of_job);
}

#[test]
fn untimed_findings_come_last_and_say_why() {
    let profile = profile_of([timed(kernel_of(1000, 100), 1e6), kernel_of(SMS / 2, 256)]);
    let advice = advise(&profile, &Options::default());
    assert!(advice.findings[0].saving.time_ns.is_some());
    let untimed = named_in(&advice, "APEX-L02");
    assert!(untimed.saving.time_ns.is_none() && untimed.saving.unknown_because.is_some());
}

#[test]
fn what_costs_next_to_nothing_is_information() {
    let profile = profile_of([timed(kernel_of(1000, 100), 10.0)]);
    assert_eq!(named_in(&advise(&profile, &Options::default()), "APEX-L01").severity, Severity::Info);
}

#[test]
fn what_saves_less_than_two_percent_comes_last() {
    // 10 s in all: 28 of 128 lanes of 0.92 s are 2%. What low occupancy costs is not known.
    for (each_ns, first) in [(0.92e6, "APEX-L01"), (0.91e6, "APEX-L05")] {
        let mut kernel = timed(kernel_of(100_000, 100), each_ns);
        kernel.attributes.as_mut().expect("known").static_shared_bytes = 60_000;
        let advice = advise(&profile_of([kernel]), &Options::default());
        assert_eq!(advice.findings[0].rule, first, "{each_ns}");
    }
}

#[test]
fn counts_come_first_on_the_cpu_device() {
    let strided = counted(Space::Global, Direction::Load, 100, 800, 700);
    let mut profile = profile_of([timed(strided, 1e6)]);
    profile.activities = vec![idle_during(IdleCause::Transferring, 10e9, 0.5)];
    profile.copies = vec![copies(MemoryKind::Device, MemoryKind::Pageable, true, 30_000, 1 << 20)];
    let advice = advise(&profile, &Options::default());
    assert_eq!(advice.findings[0].rule, "APEX-C31");
    assert_eq!(advice.findings.last().map(|finding| finding.scope), Some(Scope::Host));
}

#[test]
fn on_the_cpu_device_a_slight_fault_comes_last() {
    let first = |threads| {
        let Kernel { launch, geometry, .. } = kernel_of(1000, threads);
        let kernel = Kernel { launch, geometry, ..counted(Space::Global, Direction::Load, 100, 400, 0) };
        let mut profile = on_cpu_device(profile_of([kernel]));
        profile.copies = vec![copies(MemoryKind::Device, MemoryKind::Pageable, true, 30_000, 1 << 20)];
        advise(&profile, &Options::default()).findings.swap_remove(0).rule
    };
    // The last warp of 16 has 20 of 32 threads; that of 4 has 4.
    assert_eq!((first(500), first(100)), ("APEX-L18".to_owned(), "APEX-L01".to_owned()));
}

#[test]
fn on_the_cpu_device_kernels_weigh_what_they_execute() {
    // The kernel with the fault is launched 50 times as often, and executes a thousandth.
    let executing = |mut kernel: Kernel, instructions: u64| {
        let counts = kernel.counts.as_mut().expect("counted");
        counts.sums.warp_instructions[InstructionClass::Integer as usize] = instructions;
        kernel
    };
    let busy = executing(counted(Space::Global, Direction::Load, 100_000, 400_000, 0), 10_000_000);
    let strided = executing(counted(Space::Global, Direction::Load, 1, 8, 7), 200);
    let conflicting = executing(counted(Space::Shared, Direction::Load, 100, 3200, 3100), 5_000_000);
    let busy = Kernel { launch: kernel_of(400, 128).launch, ..busy };
    let advice = advise(&profile_of([busy, called(strided, 50, 1_000.0), conflicting]), &Options::default());
    let rules: Vec<&str> = advice.findings.iter().map(|finding| &finding.rule[..]).collect();
    // What concerns next to none of the work comes after the launch configuration's.
    assert_eq!(rules, ["APEX-C32", "APEX-L06", "APEX-C31"]);
    let summary = &named_in(&advice, "APEX-C31").summary;
    assert!(summary.contains("(50 launches, <1% of the global memory sectors)"), "{summary}");
}

#[test]
fn suppression_counts_and_names_what_it_does_not_know() {
    let profile =
        profile_of([kernel_of(1000, 100), Kernel { symbol: "other".into(), ..kernel_of(1000, 33) }]);
    let suppress = ["block-not-warp-multiple", "APEX-X99"].map(String::from).into();
    let advice = advise(&profile, &Options { suppress, ..Options::default() });
    assert!(advice.findings.iter().all(|finding| finding.rule != "APEX-L01"));
    assert_eq!(advice.suppressed, BTreeMap::from([("APEX-L01".to_owned(), 2)]));
    assert_eq!(advice.unknown_suppressions, ["APEX-X99"]);
}

#[test]
fn advice_about_some_kernels_leaves_the_others_and_the_host_out() {
    let named =
        |name: &str, kernel: Kernel| Kernel { symbol: name.into(), short_name: name.into(), ..kernel };
    let mut profile = profile_of([
        named("first", timed(kernel_of(2113, 100), 1e6)),
        named("second", timed(kernel_of(2113, 100), 1e6)),
        named("third", timed(kernel_of(2112, 128), 1e6)),
    ]);
    profile.activities = vec![idle_during(IdleCause::Transferring, 10e9, 0.5)];
    profile.copies = vec![copies(MemoryKind::Device, MemoryKind::Pageable, true, 30_000, 1 << 20)];
    let of = |kernels: Option<&[usize]>| {
        let kernels = kernels.map(|kernels| kernels.iter().copied().collect());
        advise(&profile, &Options { kernels, ..Options::default() })
    };
    let (all, one) = (of(None), of(Some(&[1])));
    assert!(all.findings.iter().any(|finding| finding.scope == Scope::Host));
    assert!(one.findings.iter().all(|finding| finding.scope == Scope::Kernel) && one.rules < all.rules);
    let ragged = named_in(&one, "APEX-L01");
    assert_eq!(ragged.kernels.iter().map(|found| found.kernel).collect::<Vec<_>>(), [1]);
    assert!(ragged.summary.starts_with("`second`") && !ragged.change.contains("other"), "{}", ragged.change);
    // Of two kernels that are alike one saves half, and shares are still those of the job.
    let saves = |advice: &Advice| named_in(advice, "APEX-L01").saving.of_job.expect("timed").value;
    assert!((saves(&one) - saves(&all) / 2.0).abs() < 1e-12);
    assert!(of(Some(&[2])).findings.iter().all(|finding| finding.rule != "APEX-L01"));
}

#[test]
fn on_the_cpu_device_nothing_rests_on_its_times_or_its_multiprocessors() {
    // A block with idle lanes, a small grid, and a job that mostly copies.
    let small = Kernel { symbol: "small".into(), ..timed(kernel_of(100, 128), 1e6) };
    let mut profile = profile_of([timed(kernel_of(1000, 100), 1e6), small]);
    profile.activities = vec![idle_during(IdleCause::Transferring, 10e9, 0.5)];
    profile.copies = vec![copies(MemoryKind::Device, MemoryKind::Pageable, true, 30_000, 1 << 20)];
    let rules = |advice: &Advice| -> Vec<String> {
        advice.findings.iter().map(|finding| finding.rule.clone()).collect()
    };
    let on_gpu = advise(&profile, &Options::default());
    assert!(["APEX-L01", "APEX-L02"].iter().all(|rule| rules(&on_gpu).iter().any(|found| found == rule)));
    assert!(on_gpu.verdict.saving_of_job.is_some());
    let profile = on_cpu_device(profile);
    assert!(profile.on_cpu_device());
    let on_cpu = advise(&profile, &Options::default());
    assert!(rules(&on_cpu).contains(&"APEX-L01".to_owned()), "a block's lanes are the same everywhere");
    assert!(!rules(&on_cpu).contains(&"APEX-L02".to_owned()), "{:?}", rules(&on_cpu));
    assert_eq!(on_cpu.verdict.saving_of_job, None);
    let unknown = |finding: &Finding| finding.saving.unknown_because.is_some();
    assert!(on_cpu.findings.iter().all(|finding| finding.saving.time_ns.is_none() && unknown(finding)));
    assert!(!on_cpu.clear.iter().any(|slug| slug == "repeated-allocation"), "its times tell nothing");
}

#[test]
fn on_the_cpu_device_the_host_s_calls_have_no_times() {
    let mut profile = profile_of([timed(kernel_of(1000, 128), 1e6)]);
    profile.activities = vec![idle_during(IdleCause::Transferring, 10e9, 0.5)];
    profile.totals.launches = 500;
    profile.copies = vec![copies(MemoryKind::Device, MemoryKind::Pageable, true, 500, 1 << 20)];
    profile.calls = vec![call("cuStreamSynchronize", CallClass::Synchronize, 500)];
    profile.memory = vec![memory(MemoryKind::Device, 300, 299, 12e6)];
    profile.processes = vec![Process::default()];
    let on_cpu = advise(&on_cpu_device(profile), &Options::default());
    let told: Vec<(&str, &str)> =
        on_cpu.findings.iter().map(|finding| (&finding.rule[..], &finding.summary[..])).collect();
    assert_eq!(
        told,
        [
            ("APEX-L18", "500 asynchronous copies of 1.00 MiB with pageable memory"),
            ("APEX-L23", "299 allocations of a size that was freed before"),
            ("APEX-L43", "500 synchronisations among 500 launches"),
        ]
    );
    let evidence = on_cpu.findings.iter().flat_map(|finding| &finding.evidence);
    assert!(evidence.into_iter().all(|evidence| evidence.unit != Unit::Nanoseconds));
}

#[test]
fn where_the_device_is_unknown_nothing_rests_on_times() {
    let mut profile = profile_of([timed(kernel_of(1000, 100), 1e6)]);
    profile.activities = vec![idle_during(IdleCause::Transferring, 10e9, 0.5)];
    profile.copies = vec![copies(MemoryKind::Device, MemoryKind::Pageable, true, 30_000, 1 << 20)];
    profile.devices.clear();
    assert!(profile.device_is_unknown() && !profile.on_cpu_device());
    let advice = advise(&profile, &Options::default());
    let found: Vec<&str> = advice.findings.iter().map(|finding| &finding.rule[..]).collect();
    assert!(found.contains(&"APEX-L18") && !found.iter().any(|rule| rule.starts_with("APEX-T")), "{found:?}");
    assert!(advice.findings.iter().all(|finding| finding.saving.time_ns.is_none()));
    assert_eq!(advice.verdict.saving_of_job, None);
    let unjudged = advice.unjudged.iter().find(|rule| rule.rule == "APEX-T24").expect("rests on times");
    assert!(unjudged.because.contains("does not name the device"), "{}", unjudged.because);

    // Only the CPU device counts.
    let mut profile = profile_of([counted(Space::Global, Direction::Load, 100, 400, 0)]);
    profile.devices.clear();
    assert!(profile.on_cpu_device() && !profile.device_is_unknown());
}

/// A line that launches a product for 6 of 10 s, quoted.
fn with_costly_line(kernel: Kernel) -> Profile {
    let mut profile = profile_of([timed(kernel, 6e6)]);
    launched_at(&mut profile, "/home/me/graph.py", 17, "scaled");
    profile.quotes.insert(("/home/me/graph.py".into(), 17), "return scaled_by(left, links)".into());
    profile
}

#[test]
fn a_line_of_which_only_a_question_is_known_comes_before_small_claims() {
    // The grid has a tail, which says nothing about what the kernel does; it costs 1% of the time,
    // then 15%.
    let rules = |blocks| {
        let advice = advise(&with_costly_line(kernel_of(blocks, 256)), &Options::default());
        let line = named_in(&advice, rules::COSTLY_LINE);
        assert!(line.summary.contains("`return scaled_by(left, links)`"));
        assert_eq!(line.saving.of_job, None);
        advice.findings.iter().map(|finding| finding.rule.clone()).collect::<Vec<_>>()
    };
    assert_eq!(rules(1600), ["APEX-T04", rules::COSTLY_LINE]);
    assert_eq!(rules(100_000).first().map(String::as_str), Some(rules::COSTLY_LINE));
}

#[test]
fn a_line_that_a_finding_explains_is_quoted_there() {
    let sort = "void cub::CUB_200802_900_NS::detail::radix_sort::DeviceSegmentedRadixSortKernel<Policy, true, \
                cub::SortOrder::Descending, float, long, int>(float const*, float*, int)";
    let advice = advise(&with_costly_line(named(sort)), &Options::default());
    assert!(
        advice.findings.iter().all(|finding| finding.rule != rules::COSTLY_LINE),
        "{:?}",
        advice.findings
    );
    let place = named_in(&advice, "APEX-T82").place.as_ref().expect("a quote");
    assert_eq!((place.line, place.text.as_str()), (17, "return scaled_by(left, links)"));
}

#[test]
fn a_rule_about_a_librarys_kernels_says_what_to_write_in_place_of_the_statement() {
    let sort = "void cub::CUB_200802_900_NS::detail::radix_sort::DeviceSegmentedRadixSortKernel<Policy, true, \
                cub::SortOrder::Descending, float, long, int>(float const*, float*, int)";
    let add = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)";
    let mut profile = profile_of([timed(named(sort), 1e6), timed(named(add), 6e6)]);
    launched_at(&mut profile, "/home/me/clouds.py", 9, "cells");
    profile.kernels[1].stacks.clear();
    profile.quotes.insert(("/home/me/clouds.py".into(), 9), "return torch.unique(cells, dim=0)".into());
    let advice = advise(&profile, &Options::default());
    let change = &named_in(&advice, "APEX-T82").change;
    let own =
        change.strip_prefix("clouds.py:9: Make one integer of each row").expect("the statement's first");
    assert!(own.contains(". Otherwise: ") && own.contains("torch.topk"), "{change}");
}
