//! Graphs of kernels so short that the device spends its time between them.

use super::{
    Draft, Needs, Outcome, Rule, UNTIMED, confidence, counted, idle_by_cause, job_saving, percent, time,
};
use crate::finding::{Evidence, Level, Saving, Scope, Severity, Unit};
use apex_profile::{Figure, Graph, Profile, SaturatingSum as _, total};

/// Maximum mean time of a kernel in a graph, nanoseconds.
const SHORT_NS: f64 = 2_000.0;
/// Minimum kernels of a graph.
const KERNELS: u64 = 4;
/// Minimum share of the time in such graphs.
const MOST: f64 = 0.25;
/// Time of a kernel in a graph that does nothing, nanoseconds: measured on an H200
/// (`data/h200/fast/million.json`).
const BETWEEN_NS: f64 = 760.0;

pub(super) const RULE: Rule = Rule {
    id: "APEX-T85",
    slug: "short-graph-kernels",
    title: "CUDA graph of very short kernels",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "CUDA graphs of at least 4 kernels that take less than 2 µs each on average, with at least 25% of the time together.",
    source: "APEX. A million kernels that do nothing take 0.76 µs each in graphs on an H200 (data/h200/fast/million.json).",
    why: "A graph saves the launch calls, but its kernels still start one after the other, and each must fill and \
        drain the device.",
    change: "Give each kernel more work, or make fewer: unroll the loop that XLA runs (jax.lax.scan and fori_loop with \
        unroll=8 or 16), enlarge the batch, fuse operations (torch.compile, a hand-written kernel that loops on the \
        device).",
    saving: "0.76 µs for each kernel of a graph but one; at most nearly all of their time, and the idle time \
             around them, because one operation over all rounds of a loop takes hardly longer than a round.",
    verify: "graphs have fewer kernels, and the run time decreases",
    judge,
};

/// A graph with its kernels and the time of all its launches.
struct Short {
    kernels: u64,
    launches: u64,
    time_ns: f64,
}

fn judge(profile: &Profile) -> Outcome {
    let graphs = || profile.graphs.iter().filter(|graph| graph.launches > 0);
    if graphs().next().is_some() && graphs().all(|graph| graph.gpu.is_none()) {
        return Outcome::Unjudged(UNTIMED.to_owned());
    }
    let short: Vec<Short> = graphs().filter_map(short).collect();
    let spent = total(short.iter().map(|graph| graph.time_ns));
    if spent <= 0.0 || spent < MOST * profile.totals.span_ns {
        return Outcome::Clear;
    }
    let started = total(short.iter().map(|graph| ((graph.kernels - 1) * graph.launches) as f64)) * BETWEEN_NS;
    let most = 0.99 * spent;
    let idle = total(idle_by_cause(profile).into_values());
    let runs = short.iter().map(|graph| graph.kernels.saturating_mul(graph.launches)).saturating_sum();
    let launches = short.iter().map(|graph| graph.launches).saturating_sum();
    let each = spent / runs.max(1) as f64;
    let saved = Figure::predicted(started.min(most), (0.0, most));
    Outcome::found(Draft {
        summary: format!(
            "{} of graphs run {} that take {} each on average, {} of the time",
            counted(launches, "launch", "launches"),
            counted(runs, "kernel", "kernels"),
            time(each),
            percent(spent / profile.totals.span_ns)
        ),
        evidence: vec![
            Evidence::new("mean time of a kernel in these graphs", Figure::computed(each), Unit::Nanoseconds)
                .compared_as(format!("shorter than {}", time(SHORT_NS))),
            Evidence::new(
                "kernels of a graph launch",
                Figure::measured(runs as f64 / launches.max(1) as f64),
                Unit::Count,
            ),
        ],
        kernels: Vec::new(),
        change: None,
        saving: Saving { beyond: Some(Figure::predicted(0.0, (0.0, idle))), ..job_saving(profile, saved) },
        confidence: confidence(Level::Medium, "it is unknown whether these kernels can be joined"),
    })
}

/// The graph, if its kernels are that short.
fn short(graph: &Graph) -> Option<Short> {
    let kernels = graph.kernels.iter().map(|&(_, nodes)| u64::from(nodes)).saturating_sum();
    let time = graph.gpu.as_ref()?;
    let is_short = kernels >= KERNELS && time.each.mean_ns < SHORT_NS * kernels as f64;
    is_short.then_some(Short { kernels, launches: graph.launches, time_ns: time.total_ns.value })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{
        assert_clear_in, assert_finds_in, assert_unjudged, kernel_of, profile_of, timed,
    };
    use super::RULE;
    use apex_profile::{Graph, Profile};

    /// 100,000 launches of a graph of six kernels, in ten seconds.
    fn graphs(each_ns: f64) -> Profile {
        let mut one = kernel_of(8, 128);
        one.launches.calls = 100_000;
        let gpu = timed(one, each_ns).gpu;
        let graph = Graph { launches: 100_000, kernels: vec![(0, 2), (1, 4)], gpu, ..Graph::default() };
        Profile { graphs: vec![graph], ..profile_of([]) }
    }

    #[test]
    fn fires_where_kernels_of_graphs_are_short() {
        let mut profile = graphs(9e3);
        profile.totals.span_ns = 1e9;
        let finding = assert_finds_in(&RULE, profile.clone());
        // Five kernels of 0.76 µs in each of 100,000 launches.
        let saving = finding.saving.time_ns.expect("a time");
        assert!((saving.value - 0.38e9).abs() < 1.0, "{saving:?}");
        assert_eq!(saving.interval().map(|(low, high)| (low, high.round())), Some((0.0, 0.891e9)));
        assert!(finding.summary.contains("600,000 kernels that take 1.50 µs each"), "{}", finding.summary);
        profile.totals.span_ns = 10e9;
        assert_clear_in(&RULE, profile);
        assert_clear_in(&RULE, graphs(12e3));
    }

    #[test]
    fn graphs_that_were_not_timed_are_not_judged() {
        let mut profile = graphs(9e3);
        profile.graphs[0].gpu = None;
        assert_unjudged(&RULE, profile);
    }
}
