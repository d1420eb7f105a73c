//! Sorts, where often a part of the order is enough.

use super::{Needs, Outcome, Rule, by_name};
use crate::finding::{Scope, Severity};
use apex_profile::names::{Operation, OwnerKind};
use apex_profile::{Figure, Kernel, Profile};

/// Minimum launches of a sort's kernel: a loop sorts, not the preparation of a run.
const LAUNCHES: u64 = 20;

pub(super) const RULE: Rule = Rule {
    id: "APEX-T82",
    slug: "sorts",
    title: "Sorts take much of the GPU time",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "At least 20 launches of a framework's or library's kernels that sort (CUB, Thrust, PyTorch), with \
        at least 2% of the GPU time together. Selections such as topk do not count.",
    source: "CUB, DeviceRadixSort: it reads and writes keys and values once for each 8 bits of the key. PyTorch, torch.topk.",
    why: "A radix sort moves all keys and values several times; a selection of the largest reads them once or twice.",
    change: "If only the first k are used, select them: torch.topk, jax.lax.top_k. If all are, sort fewer bits (16-bit \
        keys, begin_bit and end_bit of cub::DeviceRadixSort), sort keys without values, or sort outside of the loop \
        where the keys do not change.",
    saving: "Half of their time, between nothing (the whole order is needed) and nearly all of it (no order is).",
    verify: "launches of sort kernels disappear or take less GPU time",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    by_name::judge(
        profile,
        RULE.change,
        "it is unknown how much of the order is used",
        |kernel| sorts(kernel).then(|| Figure::predicted(0.5, (0.0, 0.99))),
        |who| format!("{who}: sorting"),
    )
}

fn sorts(kernel: &Kernel) -> bool {
    kernel.traits.operation == Operation::Sort
        && kernel.traits.owner.kind() != OwnerKind::Own
        && kernel.launches.ran() >= LAUNCHES
        && kernel.short_name.contains("sort")
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{assert_clear, assert_finds, called, named, timed};
    use super::RULE;

    const SORT: &str = "void cub::CUB_200802_900_NS::detail::radix_sort::DeviceSegmentedRadixSortKernel<\
                        Policy, true, cub::SortOrder::Descending, float, long, int>(float const*, float*, int)";
    const SELECTION: &str = "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(int)";

    #[test]
    fn fires_on_sorts_and_not_on_selections() {
        let finding = assert_finds(&RULE, timed(named(SORT), 2e5));
        assert!(finding.change.contains("select them"), "{}", finding.change);
        assert_clear(&RULE, timed(named(SELECTION), 2e5));
        assert_clear(&RULE, timed(named("sort_by_hand"), 2e5));
        assert_clear(&RULE, timed(called(named(SORT), 19, 4e3), 2e5));
    }
}
