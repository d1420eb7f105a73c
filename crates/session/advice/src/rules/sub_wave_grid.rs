//! A grid that gives every multiprocessor a block, but does not fill one wave.

use super::{Fault, Needs, Outcome, Rule, Subject, confidence, judge_kernels};
use crate::finding::{Evidence, Level, Scope, Severity, Unit};
use apex_profile::{Figure, Profile};

pub(super) const RULE: Rule = Rule {
    id: "APEX-L06",
    slug: "sub-wave-grid",
    title: "Grid smaller than one wave",
    severity: Severity::Low,
    scope: Scope::Kernel,
    needs: Needs::Records,
    parent: None,
    idle: &[],
    detects: "SMs <= blocks < the blocks that the device holds at once, with fewer than 16 warps for each SM. (Grids below the number of SMs are APEX-L02's.)",
    source: "Nsight Compute, speed of light: the grid is too small to fill the device, below one wave. It also asks that \
             compute and memory are both below 60% of peak, which takes hardware counters.",
    why: "The grid has fewer warps than the device can hold to hide latency, so that the kernel does not \
        reach its theoretical occupancy.",
    change: "Launch more blocks (less work per thread), batch small problems into one launch, or launch \
        independent kernels on separate streams.",
    saving: "Unknown: hardware counters are needed to see whether the kernel lacks warps.",
    verify: "waves reach 1, and the kernel's duration decreases",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    judge_kernels(
        profile,
        confidence(Level::Low, "a kernel that already reaches the memory or compute limit gains nothing"),
        fault,
        |who| format!("{who}: less than one wave of blocks"),
    )
}

/// Warps for each SM with which a kernel seldom lacks any: four for each of its schedulers.
const ENOUGH_WARPS: u64 = 16;

fn fault(Subject { kernel, geometry, sms, .. }: Subject<'_>) -> Option<Fault> {
    let (blocks, capacity) = (kernel.blocks(), geometry.waves.capacity);
    let all_warps = blocks.saturating_mul(geometry.occupancy.warps_per_block.into());
    let warps = all_warps / u64::from(sms.max(1));
    if sms == 0 || blocks < u64::from(sms) || blocks >= capacity || warps >= ENOUGH_WARPS {
        return None;
    }
    Some(Fault {
        evidence: vec![
            Evidence::new("waves", Figure::computed(geometry.waves.waves), Unit::Count).increase_towards(1.0),
            Evidence::new("blocks", Figure::measured(blocks as f64), Unit::Count)
                .increase_towards(capacity as f64),
        ],
        change: format!(
            "launch up to {capacity} blocks instead of {blocks}: the device holds {} blocks of this kernel per SM",
            geometry.occupancy.blocks_per_sm
        ),
        saves: Err("hardware counters are needed to see whether the kernel lacks warps"),
        threads: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{SMS, assert_clear, assert_finds, kernel_of};
    use super::RULE;

    #[test]
    fn fires_between_one_block_per_sm_and_one_wave() {
        // 256 threads of 32 registers: eight blocks per SM.
        let finding = assert_finds(&RULE, kernel_of(SMS, 256));
        assert!(finding.change.starts_with("launch up to 1056 blocks instead of 132"), "{}", finding.change);
        assert_finds(&RULE, kernel_of(2 * SMS - 1, 256));
    }

    #[test]
    fn the_boundaries_are_clear() {
        assert_clear(&RULE, kernel_of(SMS - 1, 256));
        assert_clear(&RULE, kernel_of(8 * SMS, 256));
        // Four warps for each scheduler hide latency well enough.
        assert_clear(&RULE, kernel_of(2 * SMS, 256));
    }
}
