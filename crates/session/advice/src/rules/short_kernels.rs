//! Kernels that take less time than the call that launches them.

use super::{
    Draft, Fault, Needs, Outcome, Rule, UNTIMED, about_kernels, confidence, counted, framework, job_saving,
    kernel_finding, launch_bound, time,
};
use crate::finding::{Evidence, Level, Saving, Scope, Severity, Unit};
use apex_profile::{Figure, IdleCause, Kernel, Profile};

/// Minimum launches for a kernel to be reported.
const LAUNCHES: u64 = 100;
/// Maximum duration of a launch call; longer calls have another cause (`APEX-T21`).
const USUAL_CALL_NS: f64 = 50e3;

pub(super) const RULE: Rule = Rule {
    id: "APEX-T20",
    slug: "short-kernels",
    title: "Kernels shorter than their launch call",
    severity: Severity::Medium,
    scope: Scope::Host,
    needs: Needs::Times,
    parent: Some("APEX-T24"),
    idle: &[IdleCause::Launching],
    detects: "A kernel launched at least 100 times whose mean GPU time is below the median CPU time of its launch call, \
              with calls of at most 50 µs.",
    source: "Holistic Trace Analysis, CUDA kernel launch statistics: GPU time below CPU time, CPU time at most 50 µs. The \
             number of launches is APEX's own.",
    why: "The device has finished the kernel before the host has launched the next one.",
    change: "Fuse these kernels with their neighbours (torch.compile, a hand-written kernel), give each more \
        work, or capture the sequence into a CUDA graph.",
    saving: "(median call - mean GPU time) x calls, summed over these kernels.",
    verify: "launches decrease, and the run time decreases",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    if profile.totals.gpu_time_ns.is_none() {
        return Outcome::Unjudged(UNTIMED.to_owned());
    }
    let mut lost = Vec::new();
    let mut kernels = Vec::new();
    for (index, kernel) in profile.kernels.iter().enumerate() {
        let Some(saved) = shortfall(kernel) else { continue };
        lost.push(saved);
        let mut finding = kernel_finding(profile, index, fault(kernel));
        finding.saving = job_saving(profile, saved);
        kernels.push(finding);
    }
    if kernels.is_empty() {
        return Outcome::Clear;
    }
    let sure =
        confidence(Level::Low, "effective only if the device waits for the host and launches can be merged");
    let draft = about_kernels(profile, kernels, sure, |who| {
        format!("{who}: the launch call takes longer than the kernel")
    });
    let saving = Figure::sum(lost).map_or_else(Saving::default, |lost| job_saving(profile, lost));
    let change = framework(profile).and_then(launch_bound::instead).map(str::to_owned);
    Outcome::found(Draft { change, saving, ..draft })
}

/// Returns the time by which the calls are longer than the kernel, in nanoseconds. None of it is
/// sure to be saved, and the maximum is as uncertain as the kernel's time.
fn shortfall(kernel: &Kernel) -> Option<Figure> {
    let gpu = kernel.gpu.as_ref()?.each.mean_ns;
    let call = kernel.cpu.median_ns;
    let counts = kernel.launches.calls >= LAUNCHES && call <= USUAL_CALL_NS && gpu < call;
    let calls = kernel.launches.calls as f64;
    let most = call * calls - kernel.gpu?.total_ns.bounds().0.max(0.0);
    counts.then(|| Figure::predicted((call - gpu) * calls, (0.0, most)))
}

fn fault(kernel: &Kernel) -> Fault {
    let gpu = kernel.gpu.as_ref().map_or(0.0, |gpu| gpu.each.mean_ns);
    let samples = kernel.gpu.as_ref().map_or(0, |gpu| gpu.each.count);
    Fault {
        evidence: vec![
            Evidence::new("mean GPU time", Figure::sampled(gpu, samples, None), Unit::Nanoseconds)
                .compared_as(format!("shorter than its launch call of {}", time(kernel.cpu.median_ns))),
            Evidence::new("median launch call", Figure::measured(kernel.cpu.median_ns), Unit::Nanoseconds),
        ],
        change: format!(
            "merge its {} of {} with their neighbours",
            counted(kernel.launches.calls, "launch", "launches"),
            time(gpu)
        ),
        saves: Err("the change saves the host's time"),
        threads: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{
        assert_clear_in, assert_finds_in, assert_unjudged, called, evidence, idle_during, kernel_of,
        profile_with, timed,
    };
    use super::RULE;
    use apex_profile::{IdleCause, Profile};

    /// Launch calls take 5 µs each.
    fn profile(gpu_ns: f64, launches: u64) -> Profile {
        let kernel = called(timed(kernel_of(1000, 128), gpu_ns), launches, 5000.0);
        let mut profile = profile_with([idle_during(IdleCause::Launching, 1e9, 0.5)]);
        profile.totals.gpu_time_ns = kernel.gpu.map(|gpu| gpu.total_ns);
        Profile { kernels: vec![kernel], ..profile }
    }

    #[test]
    fn fires_on_kernels_shorter_than_their_call() {
        let finding = assert_finds_in(&RULE, profile(2000.0, 1000));
        let saving = finding.saving.time_ns.expect("a time");
        assert!((saving.value - 3000.0 * 1000.0).abs() < 1.0);
        // The kernel's time has a standard error of 2% over the root of 50 samples.
        let (low, high) = saving.interval().expect("it is predicted");
        let off = 1.645 * 2000.0 * 1000.0 * 0.02 / 50f64.sqrt();
        assert!(low == 0.0 && (high - (3e6 + off)).abs() < 1.0, "{low} to {high}");
        let mean = evidence(&finding, "mean GPU time");
        assert_eq!((mean.value, mean.samples), (2000.0, 50));
        assert_eq!(evidence(&finding, "median launch call").value, 5000.0);
    }

    #[test]
    fn the_boundaries_are_the_call_and_100_launches() {
        assert_clear_in(&RULE, profile(5000.0, 1000));
        assert_finds_in(&RULE, profile(4999.0, 100));
        assert_clear_in(&RULE, profile(4999.0, 99));
    }

    #[test]
    fn says_so_where_nothing_was_timed() {
        assert_unjudged(&RULE, profile_with([idle_during(IdleCause::Launching, 1e9, 0.5)]));
    }
}
