//! Branches at which the threads of a warp diverge.

use super::{Fault, Needs, Outcome, Rule, Subject, judge_counts, percent};
use crate::finding::{Evidence, Scope, Severity, Unit};
use apex_profile::{KernelCounts, Profile};

/// Minimum share of active threads without a finding.
const ACTIVE: f64 = 0.8;

/// A branch that diverges less often, and yet leaves so few threads active, ends a loop: once some
/// threads have left, its remaining executions do not diverge.
const RARELY: f64 = 0.1;

/// Threads of a full warp.
const WARP: f64 = 32.0;

pub(super) const RULE: Rule = Rule {
    id: "APEX-C33",
    slug: "branch-divergence",
    title: "Warp divergence",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Counts,
    parent: None,
    idle: &[],
    detects: "On average, less than 80% of a warp's threads are active per instruction (lanes without a \
        thread excluded), and branches diverge.",
    source: "Nsight Compute, warp state: avg. active threads per warp; source counters: divergent \
        branches. The threshold is APEX's own.",
    why: "A warp executes the paths of a divergent branch one after the other, each with only some of its \
        threads.",
    change: "Make the condition uniform within each warp: sort or compact the work, or branch on the warp index. \
             Give the threads of a warp equally long loops.",
    saving: "Unknown: it depends on whether issue slots limit the kernel.",
    verify: "avg. active threads per warp increase towards 32 (on the CPU device), and the kernel's \
        duration decreases on a GPU",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    judge_counts(profile, fault, |who| format!("{who}: warp divergence"))
}

fn fault(Subject { geometry, .. }: Subject<'_>, counts: &KernelCounts) -> Option<Fault> {
    let full = WARP * geometry.block_efficiency;
    let (active_threads, sums) = (counts.sums.active_threads(), &counts.sums);
    if sums.divergent_branches == 0 || active_threads >= ACTIVE * full {
        return None;
    }
    let diverge = sums.divergent_branches as f64 / sums.branches.max(1) as f64;
    let change = match counts.worst(apex_counts::Fault::Divergence) {
        None => "make the condition uniform within each warp".to_owned(),
        Some(spot) => {
            let (place, share) = (spot.place.shown(), spot.excess as f64 / spot.total.max(1) as f64);
            match share < RARELY {
                true => format!(
                    "the threads of a warp leave the loop at {place} after different numbers of iterations: \
                        give them equally long loops, for example one row or list for each warp"
                ),
                false => format!(
                    "the branch at {place} diverges in {} of its executions: make its condition uniform \
                        within each warp",
                    percent(share)
                ),
            }
        }
    };
    Some(Fault {
        evidence: vec![
            Evidence::new("avg. active threads per warp", counts.figure(active_threads), Unit::Count)
                .increase_towards(full),
            Evidence::new("divergent branches", counts.figure(diverge), Unit::Share).decrease_towards(0.0),
        ],
        change,
        saves: Err("it depends on what limits the kernel on a GPU"),
        threads: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{assert_clear, assert_finds, counted};
    use super::RULE;
    use apex_counts::{Direction, Fault, InstructionClass, Space};
    use apex_profile::Kernel;
    use cuda_launch::LaunchConfig;

    fn with_active(active_threads: f64, divergent_branches: u64) -> Kernel {
        let mut kernel = counted(Space::Global, Direction::Load, 1, 4, 0);
        let counts = kernel.counts.as_mut().expect("counted");
        counts.sums.warp_instructions[InstructionClass::Integer as usize] = 1000;
        counts.sums.thread_instructions[InstructionClass::Integer as usize] =
            (active_threads * 1000.0) as u64;
        (counts.sums.branches, counts.sums.divergent_branches) = (100, divergent_branches);
        let spot = &mut counts.hotspots[0];
        (spot.fault, spot.total, spot.excess) = (Fault::Divergence, 80, 20);
        kernel
    }

    #[test]
    fn names_the_branch() {
        let finding = assert_finds(&RULE, with_active(11.5, 30));
        assert_eq!(
            finding.change,
            "the branch at kernel.cu:7 diverges in 25% of its executions: make its condition uniform within each warp"
        );
    }

    #[test]
    fn a_branch_that_diverges_rarely_ends_a_loop() {
        let mut rows = with_active(2.2, 1);
        let spot = &mut rows.counts.as_mut().expect("counted").hotspots[0];
        (spot.total, spot.excess) = (400, 4);
        let finding = assert_finds(&RULE, rows);
        assert!(
            finding.change.starts_with("the threads of a warp leave the loop at kernel.cu:7 after different"),
            "{}",
            finding.change
        );
    }

    #[test]
    fn the_boundary_is_four_fifths_of_the_lanes_that_have_a_thread() {
        assert_clear(&RULE, with_active(25.6, 30));
        assert_finds(&RULE, with_active(25.5, 30));
        // Without divergent branches the lanes are empty for another reason.
        assert_clear(&RULE, with_active(11.5, 0));
        let half_warp = Kernel { launch: LaunchConfig::new(1, 16), ..with_active(15.0, 30) };
        assert_clear(&RULE, half_warp);
    }
}
