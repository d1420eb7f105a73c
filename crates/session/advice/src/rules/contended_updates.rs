//! Operations of a framework that add up at indices, by atomics.

use super::by_name::is_any;
use super::{
    Draft, Fault, Needs, Outcome, Rule, UNTIMED, about_kernels, confidence, kernel_finding, percent,
};
use crate::finding::{Evidence, Level, Scope, Severity, Unit};
use apex_profile::names::Owner;
use apex_profile::{Figure, Kernel, Profile};

/// Minimum share of the GPU time.
const SHARE: f64 = 0.2;
/// Minimum duration: shorter kernels add too few values to show contention.
const LONG_NS: f64 = 100e3;
/// PyTorch's kernels that add to places given by indices.
const ADDING: [&str; 5] = [
    "index_func_large_index",
    "index_func_small_index",
    "indexing_backward",
    "embedding_backward_feature",
    "compute_grad_weight_bags",
];

pub(super) const RULE: Rule = Rule {
    id: "APEX-T69",
    slug: "contended-updates",
    title: "Atomic contention in indexed additions",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "PyTorch's kernels of index_add, scatter_add and the gradients of indexing and embedding, with \
        a mean of at least 100 µs and at least 20% of the GPU time together.",
    source: "PyTorch: these kernels add by atomics; CUDA C++ Best Practices Guide. The thresholds are APEX's own.",
    why: "The hardware serialises additions to one address: if many indices are equal, the kernel takes many \
        times as long as reading its operands.",
    change: "Reduce equal indices first (sort and segment_reduce, a sum over a dimension, a product with a \
        one-hot matrix), or add to several copies and sum them.",
    saving: "Unknown: the number of equal indices is not recorded.",
    verify: "the kernel's duration decreases",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let Some(all) = profile.totals.gpu_time_ns.map(|time| time.value).filter(|&time| time > 0.0) else {
        return Outcome::Unjudged(UNTIMED.to_owned());
    };
    let found: Vec<(usize, f64)> = profile
        .kernels
        .iter()
        .enumerate()
        .filter(|(_, kernel)| adds_up(kernel))
        .filter_map(|(index, kernel)| Some((index, kernel.gpu_total_ns()?)))
        .collect();
    let time: f64 = found.iter().map(|(_, time)| time).sum();
    if time < SHARE * all {
        return Outcome::Clear;
    }
    let kernels =
        found.iter().map(|&(index, own)| kernel_finding(profile, index, fault(own / all))).collect();
    let sure =
        confidence(Level::Low, "the number of equal indices is not recorded; only the kernel's time is");
    let draft = about_kernels(profile, kernels, sure, |who| {
        format!("{who}: indexed additions by atomics; {} of GPU time", percent(time / all))
    });
    Outcome::found(Draft { change: None, ..draft })
}

fn adds_up(kernel: &Kernel) -> bool {
    let scatters =
        is_any(kernel, &["scatter_gather"]) && kernel.name.to_ascii_lowercase().contains("reduceadd");
    kernel.traits.owner == Owner::PyTorch
        && (is_any(kernel, &ADDING) || scatters)
        && kernel.gpu.is_some_and(|gpu| gpu.each.mean_ns >= LONG_NS)
}

fn fault(share: f64) -> Fault {
    Fault {
        evidence: vec![Evidence::new("share of GPU time", Figure::measured(share), Unit::Share)],
        change: "reduce equal indices before the addition".to_owned(),
        saves: Err("the number of equal indices is not recorded"),
        threads: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{assert_clear, assert_finds, named, timed};
    use super::RULE;

    const INDEX_ADD: &str = "void at::native::indexFuncLargeIndex<float, long, unsigned int, 1, 1, -2, true, at::native::ReduceAdd>(int)";

    #[test]
    fn fires_on_long_additions_at_indices() {
        let finding = assert_finds(&RULE, timed(named(INDEX_ADD), 1e6));
        assert!(finding.saving.unknown_because.is_some());
        assert!(finding.summary.ends_with("100% of GPU time"), "{}", finding.summary);
        assert_clear(&RULE, timed(named(INDEX_ADD), 99e3));
    }
}
