//! Kernels that take less time than the call that launches them.

use super::{
    Draft, Fault, Needs, Outcome, Rule, UNTIMED, about_kernels, confidence, job_saving, kernel_finding, time,
};
use crate::figure::Figure;
use crate::finding::{Evidence, Level, Scope, Severity, Unit};
use crate::profile::{IdleCause, Kernel, Profile};

/// Below so many launches a kernel does not matter.
const LAUNCHES: u64 = 100;
/// Calls above this are slow for another reason (`APEX-T21`).
const USUAL_CALL_NS: f64 = 50e3;

pub(super) const RULE: Rule = Rule {
    id: "APEX-T20",
    slug: "short-kernels",
    title: "Kernels shorter than their own launch call",
    severity: Severity::Medium,
    scope: Scope::Host,
    needs: Needs::Times,
    parent: Some("APEX-T24"),
    idle: &[IdleCause::Launching],
    detects: "A kernel launched at least 100 times whose mean GPU time is below the median CPU time of its launch call, \
              with calls of at most 50 us.",
    source: "Holistic Trace Analysis, CUDA kernel launch statistics: GPU time below CPU time, CPU time at most 50 us. The \
             number of launches is APEX's own.",
    why: "The device is done before the host has launched the next kernel.",
    change: "Fuse these kernels with their neighbours (torch.compile, a hand-written kernel), let each do more, or \
             capture the sequence into a CUDA graph.",
    saving: "(median call - mean GPU time) x calls, summed over these kernels.",
    verify: "fewer launches, and the job's time falls",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    if profile.totals.gpu_time_ns.is_none() {
        return Outcome::Unjudged(UNTIMED.to_owned());
    }
    let mut lost = 0.0;
    let mut kernels = Vec::new();
    for (index, kernel) in profile.kernels.iter().enumerate() {
        let Some(difference) = shortfall(kernel) else { continue };
        lost += difference * kernel.launches.calls as f64;
        let mut finding = kernel_finding(profile, index, fault(kernel));
        finding.saving = job_saving(profile, Figure::predicted(difference * kernel.launches.calls as f64));
        kernels.push(finding);
    }
    if kernels.is_empty() {
        return Outcome::Clear;
    }
    let sure =
        confidence(Level::Low, "saved only where the device waits for the host, and launches can be merged");
    let draft = about_kernels(profile, kernels, sure, |who| {
        format!("{who}: the launch call takes longer than the kernel")
    });
    Outcome::found(Draft { change: None, saving: job_saving(profile, Figure::predicted(lost)), ..draft })
}

/// By how much the call is longer than the kernel, nanoseconds.
fn shortfall(kernel: &Kernel) -> Option<f64> {
    let gpu = kernel.gpu.as_ref()?.each.mean_ns;
    let call = kernel.cpu.median_ns;
    let counts = kernel.launches.calls >= LAUNCHES && call <= USUAL_CALL_NS && gpu < call;
    counts.then_some(call - gpu)
}

fn fault(kernel: &Kernel) -> Fault {
    let gpu = kernel.gpu.as_ref().map_or(0.0, |gpu| gpu.each.mean_ns);
    let samples = kernel.gpu.as_ref().map_or(0, |gpu| gpu.each.count);
    Fault {
        evidence: vec![
            Evidence::new("mean GPU time", Figure::sampled(gpu, samples, None), Unit::Nanoseconds)
                .increase_towards(kernel.cpu.median_ns),
            Evidence::new("median launch call", Figure::measured(kernel.cpu.median_ns), Unit::Nanoseconds),
        ],
        change: format!(
            "merge its {} launches of {} with their neighbours",
            kernel.launches.calls,
            time(gpu)
        ),
        saves: Err("it is the host's time that is saved"),
        threads: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{
        assert_clear_in, assert_finds_in, assert_unjudged, called, idle_during, kernel_of, profile_with,
        timed,
    };
    use super::RULE;
    use crate::profile::{IdleCause, Profile};

    /// Launch calls take 5 us each.
    fn profile(gpu_ns: f64, launches: u64) -> Profile {
        let kernel = called(timed(kernel_of(1000, 128), gpu_ns), launches, 5000.0);
        let mut profile = profile_with([idle_during(IdleCause::Launching, 1e9, 0.5)]);
        profile.totals.gpu_time_ns = kernel.gpu.map(|gpu| gpu.total_ns);
        Profile { kernels: vec![kernel], ..profile }
    }

    #[test]
    fn fires_on_kernels_shorter_than_their_call() {
        let finding = assert_finds_in(&RULE, profile(2000.0, 1000));
        assert!((finding.saving.time_ns.expect("a time").value - 3000.0 * 1000.0).abs() < 1.0);
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
