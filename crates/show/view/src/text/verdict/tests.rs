//! Tests of the verdict: the sentences that kinds of profiles get.

use super::counted::how_much;
use super::remedy::{next_look, remedy};
use super::spent::within_sentence;
use super::{Part, sentence, sentences};
use apex_advice::{Advice, Finding, KernelFinding, KnownCause, Observed, Options, Scope, Severity, advise};
use apex_profile::names::Owner;
use apex_profile::{
    Accounts, Activity, Basis, Device, Distribution, Figure, GpuTime, IdleCause, Kernel, KernelCounts,
    Launches, Process, Profile, SessionCode,
};

/// A kernel that takes so much GPU time.
fn taking(owner: Owner, total_ns: f64) -> Kernel {
    let gpu = GpuTime {
        each: Distribution::default(),
        deviation_ns: None,
        basis: Basis::Busy,
        queued_samples: 0,
        busy_samples: 1,
        idle_samples: 0,
        correction_ns: 0.0,
        total_ns: Figure::measured(total_ns),
    };
    let mut kernel = Kernel { short_name: "product".into(), gpu: Some(gpu), ..Kernel::default() };
    kernel.traits.owner = owner;
    kernel
}

#[test]
fn a_busy_kernel_without_a_finding_can_be_looked_into() {
    let look = |kernels: Vec<Kernel>, busy_ns: f64, code: Option<SessionCode>| {
        let accounts = Accounts { span_ns: 1e9, kernels: Figure::measured(busy_ns), ..Accounts::default() };
        let mut job = Profile {
            activities: vec![Activity { accounts, ..Activity::default() }],
            kernels,
            code,
            ..Profile::default()
        };
        job.totals.gpu_time_ns = Some(Figure::measured(busy_ns));
        next_look(&Part {
            job: &job,
            name: "the time".into(),
            iterations: None,
            steps: None,
            is_window: false,
            is_without_steps: false,
            kernels: None,
            machine: None,
        })
    };
    let own = || vec![taking(Owner::Own, 0.8e9)];
    let both = look(own(), 0.9e9, None).expect("a sentence");
    assert!(both.contains("`product`: `apex run --code`") && both.contains("--device cpu"), "{both}");
    let counts = look(own(), 0.9e9, Some(SessionCode::default())).expect("a sentence");
    assert!(!counts.contains("--code") && counts.contains("--device cpu"), "{counts}");
    // The CPU device does not execute Triton's machine code.
    let in_python = vec![taking(Owner::Own, 0.8e9), taking(Owner::PyTorch, 1e3)];
    let code = look(in_python, 0.9e9, None).expect("a sentence");
    assert!(code.contains("--code") && !code.contains("--device cpu"), "{code}");
    // An idle device, a library's kernel, and one that takes a small part.
    assert_eq!(look(own(), 0.7e9, None), None);
    assert_eq!(look(vec![taking(Owner::CuBlas, 0.8e9)], 0.9e9, None), None);
    assert_eq!(look(vec![taking(Owner::Own, 0.4e9)], 0.9e9, None), None);
}

#[test]
fn bodies_that_nobody_counts_make_the_launches_a_lower_bound() {
    let graph = |opaque, launches| apex_profile::Graph { opaque, launches, ..Default::default() };
    let of = |graphs: Vec<apex_profile::Graph>| {
        let mut profile = Profile { graphs, ..Profile::default() };
        profile.totals.launches = 3;
        super::launches(&profile)
    };
    assert_eq!(of(vec![graph(0, 5), graph(2, 0)]), "3 launches", "the graph was not launched");
    assert_eq!(of(vec![graph(0, 5), graph(2, 1)]), "at least 3 launches");
}

#[test]
fn a_small_part_of_the_work_is_said_to_be_one() {
    let of = |instructions: u64| {
        let mut counts = KernelCounts { launches: 1, ..KernelCounts::default() };
        counts.sums.warp_instructions[apex_counts::InstructionClass::Single as usize] = instructions;
        let launches = Launches { calls: 1, ..Launches::default() };
        Kernel { counts: Some(counts), launches, ..Kernel::default() }
    };
    let job = Profile { kernels: vec![of(10), of(90)], ..Profile::default() };
    assert_eq!(how_much(&job, 0), ", which has 10% of the executed instructions");
    assert_eq!(how_much(&job, 1), "");
    let uncounted = Profile { kernels: vec![Kernel::default()], ..Profile::default() };
    assert_eq!(how_much(&uncounted, 0), "");
}

fn whole(job: &Profile) -> Part<'_> {
    Part {
        job,
        name: "each step".into(),
        iterations: None,
        steps: None,
        is_window: false,
        is_without_steps: false,
        kernels: None,
        machine: None,
    }
}

#[test]
fn a_wait_names_both_ranks_and_says_what_its_shares_are_of() {
    let activity = |process: usize, ordinal: u32, waiting: f64| Activity {
        process,
        device: Some(process),
        ordinal: Some(ordinal),
        span_ns: 1e9,
        accounts: Accounts {
            span_ns: 1e9,
            kernels: Figure::measured(1e9 - waiting),
            waiting: Figure::measured(waiting),
            ..Accounts::default()
        },
        ..Activity::default()
    };
    let ranked = |pid, rank| Process { pid, rank: Some(rank), ..Process::default() };
    // The rank that started first, and came first into the list, is rank 1 on GPU 1.
    let mut job = Profile {
        devices: vec![Device::default(), Device::default()],
        processes: vec![ranked(651, 1), ranked(650, 0)],
        activities: vec![activity(0, 1, 0.0), activity(1, 0, 0.36e9)],
        ..Profile::default()
    };
    let said = |job: &Profile| sentence(&whole(job), &Advice::default());
    assert_eq!(
        said(&job),
        "Rank 0 (process 650, GPU 0) waits for rank 1 (process 651, GPU 1) in collectives for 36% of its time, on \
            average over 2 ranks 18% of each step."
    );
    // Two ranks that do not wait: it is unknown which of them is late.
    job.processes.push(ranked(652, 2));
    job.activities.push(activity(2, 2, 0.0));
    assert!(
        said(&job).contains("waits for a slower rank in collectives for 36% of its time"),
        "{}",
        said(&job)
    );
    // A rank alone, of a job whose other ranks were not selected.
    job.activities.remove(0);
    job.activities.truncate(1);
    assert!(said(&job).ends_with("for 36% of its time."), "{}", said(&job));
}

#[test]
fn the_span_of_several_is_that_of_the_longest_and_savings_are_of_all() {
    let mut job = second(Accounts { kernels: Figure::measured(0.5e9), ..Accounts::default() });
    job.processes = vec![Process { rank: Some(0), ..Process::default() }; 2];
    let mut other = Activity { process: 1, device: Some(1), ..job.activities[0].clone() };
    (other.span_ns, other.accounts.span_ns) = (3e9, 3e9);
    job.activities.push(other);
    let advice = advice_of(vec![found("APEX-H00", "x", "Slow", Some(0.4e9))]);
    let said = sentences(&whole(&job), &advice).join(" ");
    let span = "The longest of 2 ranks takes 3.00 s from its first to its last work; the kernels of all take \
        1.00 s together.";
    assert!(said.contains(span), "{said}");
    assert!(said.ends_with(" of 2 ranks together."), "{said}");
}

/// A second of a step with these accounts.
fn second(accounts: Accounts) -> Profile {
    let activity =
        Activity { span_ns: 1e9, accounts: Accounts { span_ns: 1e9, ..accounts }, ..Activity::default() };
    Profile {
        devices: vec![Device { name: "NVIDIA H200".into(), ..Device::default() }],
        activities: vec![activity],
        ..Profile::default()
    }
}

fn found(rule: &str, slug: &str, title: &str, saves_ns: Option<f64>) -> Finding {
    let mut finding = Finding::default();
    (finding.rule, finding.slug, finding.title) = (rule.into(), slug.into(), title.into());
    (finding.severity, finding.remedy) = (Severity::Medium, "Change it".into());
    finding.saving.of_job = saves_ns.map(|time| Figure::measured(time / 1e9));
    finding.saving.time_ns = saves_ns.map(Figure::measured);
    finding
}

fn advice_of(findings: Vec<Finding>) -> Advice {
    Advice { findings, ..Advice::default() }
}

#[test]
fn a_cause_is_given_its_own_part_of_the_idle_time() {
    let idle = [(IdleCause::HostCode, Figure::measured(0.96e9))].into();
    let job = second(Accounts { kernels: Figure::measured(0.04e9), idle, ..Accounts::default() });
    let in_fsync = |time_ns| {
        let mut finding = found("APEX-L96", "known-host-work", "A file is synced", Some(time_ns));
        let doing = "the host is in `fsync`, called from log.py:34 step".to_owned();
        finding.saving.observed = Some(Observed { time_ns: Figure::measured(time_ns), doing });
        finding
    };
    let launching = || {
        let mut finding = found("APEX-T24", "launch-bound", "Launch-bound", Some(0.6e9));
        finding.within_time = Some("the largest part of it at log.py:30 step (70%)".into());
        finding
    };
    let said = |findings| sentence(&whole(&job), &advice_of(findings));
    assert_eq!(
        said(vec![in_fsync(0.28e9), launching()]),
        "The GPU is idle 96% of each step: 28% of each step while the host is in `fsync`, called from log.py:34 step; \
            for the rest the host launches kernels too slowly."
    );
    assert_eq!(
        said(vec![in_fsync(0.9e9), launching()]),
        "The GPU is idle 96% of each step: while the host is in `fsync`, called from log.py:34 step."
    );
    assert_eq!(
        said(vec![launching()]),
        "The GPU is idle 96% of each step: the host launches kernels too slowly; the largest part of it at log.py:30 \
            step (70%)."
    );
}

#[test]
fn a_known_cause_without_samples_is_the_reason_that_its_remedy_belongs_to() {
    let idle = [(IdleCause::Launching, Figure::measured(0.8e9))].into();
    let job = second(Accounts { kernels: Figure::measured(0.2e9), idle, ..Accounts::default() });
    let cause = KnownCause { id: "host-function-each-step".into(), source: String::new() };
    let mut known =
        found("APEX-L96", "known-host-work", "The stream calls a function of the host", Some(0.72e9));
    known.cause = Some(cause);
    let launching = found("APEX-T24", "launch-bound", "Launch-bound", Some(0.72e9));
    assert_eq!(
        sentence(&whole(&job), &advice_of(vec![known, launching])),
        "The GPU is idle 80% of each step: the stream calls a function of the host."
    );
    assert_eq!(within_sentence("NumPy computes on the host"), "NumPy computes on the host");
}

#[test]
fn what_takes_most_of_a_step_is_said_before_idle_time() {
    let idle = || [(IdleCause::HostCode, Figure::measured(0.35e9))].into();
    let copying = |copies| {
        let kernels = Figure::measured(0.65e9 - copies);
        let job = second(Accounts {
            copies: Figure::measured(copies),
            kernels,
            idle: idle(),
            ..Accounts::default()
        });
        sentence(&whole(&job), &Advice::default())
    };
    assert_eq!(
        copying(0.57e9),
        "Copies take 57% of each step, without overlapping kernels; for 35% of each step the GPU is idle."
    );
    assert!(copying(0.3e9).starts_with("The GPU is idle 35% of each step"), "{}", copying(0.3e9));
}

#[test]
fn fills_are_no_copies() {
    let mut job = second(Accounts { copies: Figure::measured(0.9e9), ..Accounts::default() });
    let set = apex_profile::Call {
        name: "cuMemsetD8Async".into(),
        class: Some(apex_trace::layout::CallClass::Set),
        bytes: 1 << 30,
        count: 1,
        ..apex_profile::Call::default()
    };
    job.calls = vec![set];
    assert_eq!(
        sentence(&whole(&job), &Advice::default()),
        "Fills of memory (memset) take 90% of each step, without overlapping kernels."
    );
}

#[test]
fn a_fault_of_unknown_saving_in_the_longest_kernel_is_the_change_to_make() {
    let mut job = second(Accounts { kernels: Figure::measured(0.99e9), ..Accounts::default() });
    job.kernels = vec![taking(Owner::Own, 0.9e9), taking(Owner::Own, 0.09e9)];
    job.totals.gpu_time_ns = Some(Figure::measured(0.99e9));
    let about = |kernel| {
        let mut finding = found("APEX-L80", "local-memory-size", "Local memory exceeds the L1 cache", None);
        finding.scope = Scope::Kernel;
        finding.kernels = vec![KernelFinding { kernel, ..KernelFinding::default() }];
        finding
    };
    let said = |finding| sentences(&whole(&job), &advice_of(vec![finding])).pop().expect("a sentence");
    assert_eq!(said(about(0)), "→ Change it.");
    assert!(said(about(1)).starts_with("No rule names a change."), "{}", said(about(1)));
}

#[test]
fn a_remedy_promises_no_more_idle_time_than_the_bars_show() {
    let idle = Figure::predicted(0.6e9, (0.5e9, 0.8e9));
    let accounts = Accounts {
        span_ns: 1e9,
        kernels: Figure::measured(0.4e9),
        idle: [(IdleCause::HostCode, idle)].into(),
        ..Accounts::default()
    };
    let activity = Activity {
        launches: 1_000,
        span_ns: 1e9,
        idle_share: Some(Figure::predicted(0.6, (0.5, 0.8))),
        idle_by: [(IdleCause::HostCode, 0.6e9)].into(),
        accounts,
        ..Activity::default()
    };
    let mut job = Profile {
        devices: vec![Device { name: "NVIDIA H200".into(), ..Device::default() }],
        activities: vec![activity],
        ..Profile::default()
    };
    job.totals.span_ns = 1e9;
    let advice = advise(&job, &Options::default());
    let finding = advice.findings.iter().find(|finding| finding.slug == "host-bound").expect("it is idle");
    assert!(finding.saving.time_ns.expect("known").bounds().1 > 0.6e9, "{:?}", finding.saving);
    let said = remedy(&whole(&job), finding);
    assert!(said.contains(" 600 ms of idle time."), "{said}");
}
