//! Profiles with and without faults, for the tests of the rules: an imaginary H100 with 132
//! multiprocessors.

use apex_trace::definition::StreamKind;
use apex_trace::layout::{CallClass, MemoryKind};
use cuda_launch::{FunctionAttributes, LaunchConfig};

use super::{Outcome, Rule};
use crate::advise::{Options, advise};
use crate::finding::{Direction, Finding, Unit};
use apex_counts::{Counts, Fault, Hotspot, InstructionClass, Place, Space, Traffic};
use apex_profile::names::{Identity, Owner, identify};
use apex_profile::{
    Accounts, Activity, AfterLaunch, Basis, Call, CallStack, Copies, CopyDirection, Device, Distribution,
    Figure, Frame, Gap, Geometry, GpuTime, IdleCause, Kernel, KernelCounts, Launches, Memory, PhaseKind,
    Process, Profile, Sizes, StackCount, Stream, Totals,
};

/// Multiprocessors of the device.
pub(crate) const SMS: u32 = 132;

pub(crate) fn device() -> Device {
    Device {
        name: "NVIDIA H100".to_owned(),
        compute_capability: Some((9, 0)),
        sms: SMS,
        attributes: vec![(75, 9), (76, 0), (16, SMS as i32)],
        ..Device::default()
    }
}

/// The same session, recorded on the CPU device.
pub(crate) fn on_cpu_device(mut profile: Profile) -> Profile {
    for device in &mut profile.devices {
        device.name = apex_conventions::cpu_device::NAME.to_owned();
    }
    profile
}

/// A kernel of 32 registers, launched 1000 times in `blocks` blocks of `threads` threads.
pub(crate) fn kernel_of(blocks: u32, threads: u32) -> Kernel {
    with_registers(blocks, threads, 32)
}

pub(crate) fn with_registers(blocks: u32, threads: u32, registers: u32) -> Kernel {
    let attributes =
        FunctionAttributes { registers, max_threads_per_block: 1024, ..FunctionAttributes::default() };
    Kernel {
        name: "kernel(float*)".to_owned(),
        short_name: "kernel".to_owned(),
        symbol: "_Z6kernelPf".to_owned(),
        device: Some(0),
        launch: LaunchConfig::new(blocks, threads),
        attributes: Some(attributes),
        launches: Launches { calls: 1000, ..Launches::default() },
        ..Kernel::default()
    }
}

/// As [`kernel_of`], named like this, with what the name tells.
pub(crate) fn named(symbol: &str) -> Kernel {
    let Identity { name, short_name, traits } = identify(symbol);
    Kernel { name, short_name, traits, symbol: symbol.to_owned(), ..kernel_of(1000, 128) }
}

/// Adds counts of one launch: traffic of one kind, and its worst place.
pub(crate) fn counted(
    space: Space,
    direction: apex_counts::Direction,
    requests: u64,
    transactions: u64,
    excess: u64,
) -> Kernel {
    let (threads, bytes) = (requests * 32, requests * 128);
    let mut sums = Counts::default();
    sums.traffic[space as usize][direction as usize] =
        Traffic { requests, threads, bytes, transactions, excess };
    let fault = if space == Space::Shared { Fault::BankConflict } else { Fault::Uncoalesced };
    let place = Place { file: "kernel.cu".to_owned(), line: 7, ..Place::default() };
    let hotspot = Hotspot { fault, place, events: requests, total: transactions, excess };
    let counts = KernelCounts { launches: 1, sums, hotspots: vec![hotspot], ..KernelCounts::default() };
    Kernel { counts: Some(counts), ..kernel_of(1000, 128) }
}

/// Lets threads of a counted kernel execute arithmetic and conversions.
pub(crate) fn execute(kernel: &mut Kernel, doubles: u64, singles: u64, conversions: u64) {
    let threads = &mut kernel.counts.as_mut().expect("counted").sums.thread_instructions;
    threads[InstructionClass::Double as usize] = doubles;
    threads[InstructionClass::Single as usize] = singles;
    threads[InstructionClass::Conversion as usize] = conversions;
}

/// Sets a mean GPU time, as from 50 samples.
pub(crate) fn timed(mut kernel: Kernel, each_ns: f64) -> Kernel {
    let launches = kernel.launches.calls as f64;
    kernel.gpu = Some(GpuTime {
        each: uniform(50, each_ns),
        deviation_ns: Some(each_ns * 0.02),
        basis: Basis::Busy,
        queued_samples: 0,
        busy_samples: 50,
        idle_samples: 0,
        correction_ns: 2_700.0,
        total_ns: Figure::sampled(each_ns * launches, 50, Some(each_ns * 0.02 / 50f64.sqrt() * launches)),
    });
    kernel
}

/// Lets all launches of kernels come from this line.
pub(crate) fn launched_at(profile: &mut Profile, file: &str, line: u32, function: &str) {
    let frame = Frame { file: file.to_owned(), line: Some(line), function: function.to_owned() };
    let stack = profile.call_stacks.len();
    profile.call_stacks.push(CallStack { frames: vec![frame], ..CallStack::default() });
    for kernel in &mut profile.kernels {
        kernel.stacks = vec![StackCount { stack, first_seen: 0, sampled: 1 }];
    }
}

/// Launched so often, with calls that take so long.
pub(crate) fn called(mut kernel: Kernel, launches: u64, call_ns: f64) -> Kernel {
    kernel.launches.calls = launches;
    kernel.cpu = uniform(launches, call_ns);
    kernel
}

fn uniform(count: u64, each_ns: f64) -> Distribution {
    Distribution {
        count,
        total_ns: each_ns * count as f64,
        mean_ns: each_ns,
        p10_ns: each_ns,
        median_ns: each_ns,
        p90_ns: each_ns,
        p99_ns: each_ns,
        max_ns: each_ns,
    }
}

/// A profile of these kernels, with what follows from them.
pub(crate) fn profile_of<const N: usize>(kernels: [Kernel; N]) -> Profile {
    let mut profile = Profile { devices: vec![device()], kernels: kernels.into(), ..Profile::default() };
    let limits = device().limits().expect("9.0 is known");
    for kernel in &mut profile.kernels {
        kernel.geometry = Geometry::of(&limits, kernel);
    }
    let gpu =
        Figure::sum(profile.kernels.iter().filter_map(|kernel| kernel.gpu.as_ref()).map(|gpu| gpu.total_ns));
    profile.totals = Totals {
        launches: profile.kernels.iter().map(|kernel| kernel.launches.calls).sum(),
        span_ns: 10e9,
        gpu_time_ns: gpu,
        gpu_busy: gpu.map(|gpu| gpu.scaled(1e-10)),
        ..Totals::default()
    };
    profile
}

/// A profile of one process with these activities.
pub(crate) fn profile_with<const N: usize>(activities: [Activity; N]) -> Profile {
    Profile {
        devices: vec![device()],
        processes: vec![Process { pid: 1, ..Process::default() }],
        totals: Totals { span_ns: activities.iter().map(|a| a.span_ns).sum(), ..Totals::default() },
        activities: activities.into(),
        ..Profile::default()
    }
}

/// The same, with launches of a kernel of this owner alone.
pub(crate) fn launched_by(owner: Owner, mut profile: Profile) -> Profile {
    let mut kernel = kernel_of(1000, 128);
    kernel.traits.owner = owner;
    profile.totals.launches = kernel.launches.calls;
    profile.kernels = vec![kernel];
    profile
}

/// Modelled, and evenly idle while the host runs its own code.
pub(crate) fn activity(span_ns: f64, idle: f64) -> Activity {
    idle_during(IdleCause::HostCode, span_ns, idle)
}

/// Modelled, and evenly idle for one reason; 100 000 launches.
pub(crate) fn idle_during(cause: IdleCause, span_ns: f64, idle: f64) -> Activity {
    let idle_ns = idle * span_ns;
    let known = |part: f64| Figure::predicted(part, (0.9 * part, (1.1 * part).min(span_ns)));
    Activity {
        launches: 100_000,
        accounts: Accounts {
            span_ns,
            kernels: known(span_ns - idle_ns),
            idle: [(cause, known(idle_ns))].into(),
            ..Accounts::default()
        },
        idle_by: [(cause, idle_ns)].into(),
        device: Some(0),
        span_ns,
        timed_share: 1.0,
        streams: 1,
        idle_share: Some(Figure::predicted(idle, (0.9 * idle, (1.1 * idle).min(1.0)))),
        busy: vec![1.0 - idle; Activity::CHUNKS],
        ..Activity::default()
    }
}

/// A gap in which the host runs its own code.
pub(crate) fn gap(start_ns: f64, duration_ns: f64) -> Gap {
    let by = [(IdleCause::HostCode, duration_ns)].into();
    let duration_ns = Figure::predicted(duration_ns, (0.9 * duration_ns, 1.1 * duration_ns));
    Gap { start_ns, phase: PhaseKind::Whole, duration_ns, before: None, after: None, by }
}

/// Copies of `bytes` bytes whose calls take 100 µs each.
pub(crate) fn copies(
    destination: MemoryKind,
    source: MemoryKind,
    asynchronous: bool,
    count: u64,
    bytes: u64,
) -> Copies {
    let direction = CopyDirection::between(source, destination);
    Copies {
        direction,
        source,
        destination,
        asynchronous,
        count,
        bytes: count * bytes,
        sizes: Sizes::of(bytes, count),
        cpu: uniform(count, 100e3),
        after_launch: AfterLaunch { count, cpu_ns: 100e3 * count as f64 },
        stacks: Vec::new(),
    }
}

/// Calls that take 20 µs each.
pub(crate) fn call(name: &str, class: CallClass, count: u64) -> Call {
    Call {
        name: name.to_owned(),
        class: Some(class),
        count,
        failed: 0,
        captured: 0,
        bytes: 0,
        cpu: uniform(count, 20e3),
        after_launch: AfterLaunch { count, cpu_ns: 20e3 * count as f64 },
        stacks: Vec::new(),
    }
}

pub(crate) fn stream(kind: StreamKind, launches: u64) -> Stream {
    Stream { process: 0, device: Some(0), id: 1, kind: Some(kind), launches, graph_launches: 0, transfers: 0 }
}

/// Memory allocated among launches and freed again.
pub(crate) fn memory(kind: MemoryKind, allocations: u64, repeated: u64, cpu_ns: f64) -> Memory {
    Memory {
        kind,
        allocations,
        frees: allocations,
        allocated_bytes: allocations << 20,
        peak_bytes: 1 << 20,
        live: 0,
        live_bytes: 0,
        repeated,
        among_launches: allocations,
        cpu_ns,
    }
}

/// One value that speaks for a finding.
#[track_caller]
pub(crate) fn evidence(finding: &Finding, name: &str) -> Figure {
    let found = finding.kernels.iter().flat_map(|kernel| &kernel.evidence).chain(&finding.evidence);
    let named = found.into_iter().find(|evidence| evidence.name == name);
    named.unwrap_or_else(|| panic!("no {name} in {finding:?}")).figure
}

pub(crate) fn judged(rule: &Rule, profile: &Profile) -> Outcome {
    (rule.judge)(profile)
}

/// The finding of `rule` on a profile of this kernel alone.
pub(crate) fn assert_finds(rule: &Rule, kernel: Kernel) -> Finding {
    assert_finds_in(rule, profile_of([kernel]))
}

pub(crate) fn assert_clear(rule: &Rule, kernel: Kernel) {
    assert_clear_in(rule, profile_of([kernel]));
}

/// The finding of `rule` as [`advise`] gives it.
pub(crate) fn assert_finds_in(rule: &Rule, profile: Profile) -> Finding {
    let advice = advise(&profile, &Options::default());
    let found = advice.findings.into_iter().find(|finding| finding.rule == rule.id);
    let found = found.unwrap_or_else(|| panic!("{} finds nothing", rule.id));
    let of_kernels = found.kernels.iter().flat_map(|kernel| &kernel.evidence);
    for evidence in found.evidence.iter().chain(of_kernels).filter(|one| one.unit == Unit::Nanoseconds) {
        let is_slower = matches!(evidence.direction, Some(Direction::IncreaseTowards(_)));
        assert!(!is_slower, "{} wants more time: {}", rule.id, evidence.name);
    }
    found
}

#[track_caller]
pub(crate) fn assert_clear_in(rule: &Rule, profile: Profile) {
    match judged(rule, &profile) {
        Outcome::Clear => {}
        Outcome::Found(draft) | Outcome::Known(draft, _) => panic!("{} finds: {}", rule.id, draft.summary),
        Outcome::Unjudged(because) => panic!("{} does not judge: {because}", rule.id),
    }
}

#[track_caller]
pub(crate) fn assert_unjudged(rule: &Rule, profile: Profile) {
    assert!(matches!(judged(rule, &profile), Outcome::Unjudged(_)), "{} judges", rule.id);
}
