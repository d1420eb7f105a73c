//! A sequence of launches that a CUDA graph could hold.

use super::{CPU_TIMES, Draft, Needs, Outcome, Rule, confidence, job_saving, time, up_to};
use crate::finding::{Evidence, Level, Scope, Severity, Unit};
use apex_profile::{Figure, IdleCause, Profile, SaturatingSum as _, Sequence};

/// Minimum repetitions of a sequence.
const REPEATS: u64 = 100;
/// Nanoseconds of a graph launch on an H200: for the call, and for each node.
const GRAPH_LAUNCH_NS: f64 = 2_000.0;
const GRAPH_NODE_NS: f64 = 1.4;

pub(super) const RULE: Rule = Rule {
    id: "APEX-L25",
    slug: "graph-candidate",
    title: "Repeated launch sequence could be a CUDA graph",
    severity: Severity::Medium,
    scope: Scope::Host,
    needs: Needs::Records,
    parent: Some("APEX-T24"),
    idle: &[IdleCause::Launching],
    detects: "The same sequence of at least 2 launches on one stream at least 100 times, with no synchronisation, \
              allocation or synchronous copy inside.",
    source: "APEX. On an H200, launching a graph of 1000 kernels takes 3.4 µs of CPU time, 1000 launch calls 2500 µs \
             and more.",
    why: "Each launch call takes the host a few microseconds, and more in a framework; a graph launch is a \
        single call.",
    change: "Capture the sequence into a CUDA graph and launch the graph: cudaStreamBeginCapture; in PyTorch \
        torch.cuda.graph or torch.compile(mode=\"reduce-overhead\"). Arguments that change need static \
        buffers or a graph update.",
    saving: "CPU time of the launch calls, less one graph launch for each repetition (2 µs, and 1.4 ns for each kernel).",
    verify: "graph launches replace launch calls, and the run time decreases",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    if profile.on_cpu_device() {
        return Outcome::Unjudged(CPU_TIMES.to_owned());
    }
    let fits =
        |sequence: &&Sequence| sequence.repeats >= REPEATS && sequence.length >= 2 && gain(sequence) > 0.0;
    let candidates: Vec<&Sequence> = profile.sequences.iter().filter(fits).collect();
    let Some(first) = candidates.iter().max_by(|a, b| gain(a).total_cmp(&gain(b))) else {
        return Outcome::Clear;
    };
    let saved: f64 = candidates.iter().map(|sequence| gain(sequence)).sum();
    let spent: f64 = candidates.iter().map(|sequence| sequence.launch_cpu_ns).sum();
    let covered = candidates.iter().map(|sequence| sequence.covered()).saturating_sum();
    let share = (covered as f64 / profile.totals.launches.max(1) as f64).min(1.0);
    Outcome::found(Draft {
        summary: format!(
            "a sequence of {} launches that starts with `{}` repeats {} times; sequences like this cover {} of all launch calls",
            first.length,
            first.kernels.first().and_then(|&k| profile.kernels.get(k)).map_or("?", |k| &k.short_name),
            first.repeats,
            super::percent(share)
        ),
        evidence: vec![
            Evidence::new("launches in the sequence", Figure::measured(first.length as f64), Unit::Count),
            Evidence::new("repetitions", Figure::measured(first.repeats as f64), Unit::Count),
            Evidence::new("share of launch calls in such sequences", Figure::measured(share), Unit::Share),
            Evidence::new("CPU time of their launch calls", Figure::measured(spent), Unit::Nanoseconds)
                .decrease_towards(spent - saved),
        ],
        kernels: Vec::new(),
        change: Some(format!(
            "capture the {} launches from `{}` on into a CUDA graph and launch that {} times: {} of CPU time in launch \
             calls becomes {}",
            first.length,
            first.kernels.first().and_then(|&k| profile.kernels.get(k)).map_or("?", |k| &k.short_name),
            first.repeats,
            time(first.launch_cpu_ns),
            time(first.launch_cpu_ns - gain(first))
        )),
        saving: job_saving(profile, up_to(saved)),
        confidence: match profile.totals.gpu_time_ns {
            Some(_) => confidence(
                Level::Medium,
                "effective only if the device waits for launches; arguments may change between repetitions",
            ),
            None => confidence(
                Level::Low,
                "without kernel times it is unknown whether the device waits for launches",
            ),
        },
    })
}

/// CPU time that a graph would save, nanoseconds.
fn gain(sequence: &Sequence) -> f64 {
    let graph = GRAPH_LAUNCH_NS + GRAPH_NODE_NS * sequence.length as f64;
    (sequence.launch_cpu_ns - sequence.repeats as f64 * graph).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{
        assert_clear_in, assert_finds_in, evidence, idle_during, kernel_of, profile_with,
    };
    use super::RULE;
    use apex_profile::{IdleCause, Profile, Sequence};

    /// Launch calls take 4 µs each.
    fn profile(length: u64, repeats: u64) -> Profile {
        let sequence = Sequence {
            kernels: vec![0; length as usize],
            length,
            repeats,
            launch_cpu_ns: 4000.0 * (length * repeats) as f64,
            ..Sequence::default()
        };
        let mut profile = profile_with([idle_during(IdleCause::Launching, 1e9, 0.5)]);
        profile.totals.launches = length * repeats;
        Profile { kernels: vec![kernel_of(1000, 128)], sequences: vec![sequence], ..profile }
    }

    #[test]
    fn fires_on_a_long_repeated_sequence() {
        let finding = assert_finds_in(&RULE, profile(20, 500));
        let saved = finding.saving.time_ns.expect("a time").value;
        assert!((saved - 500.0 * (80_000.0 - 2_028.0)).abs() < 1.0, "{saved}");
        assert!(finding.change.starts_with("capture the 20 launches"), "{}", finding.change);
        assert_eq!(evidence(&finding, "launches in the sequence").value, 20.0);
        assert_eq!(evidence(&finding, "repetitions").value, 500.0);
        assert_eq!(evidence(&finding, "CPU time of their launch calls").value, 500.0 * 80_000.0);
    }

    #[test]
    fn its_share_is_of_all_launch_calls() {
        let mut one = profile(20, 500);
        one.totals.launches = 40_000;
        let share = evidence(&assert_finds_in(&RULE, one), "share of launch calls in such sequences");
        assert_eq!(share.value, 0.25);
    }

    #[test]
    fn the_boundaries_are_100_repetitions_of_two_launches() {
        assert_finds_in(&RULE, profile(2, 100));
        assert_clear_in(&RULE, profile(2, 99));
        assert_clear_in(&RULE, profile(1, 1000));
    }
}
