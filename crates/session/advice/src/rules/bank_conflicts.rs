//! Bank conflicts in shared memory.

use super::{Fault, Needs, Outcome, Rule, judge_counts};
use crate::finding::{Evidence, Scope, Severity, Unit};
use apex_counts::{Space, Traffic};
use apex_profile::{KernelCounts, Profile};

/// Minimum share of excessive wavefronts for a finding.
const EXCESS: f64 = 0.25;

pub(super) const RULE: Rule = Rule {
    id: "APEX-C32",
    slug: "bank-conflicts",
    title: "Shared-memory bank conflicts",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Counts,
    parent: None,
    idle: &[],
    detects: "More than 25% of the shared-memory wavefronts are excessive: threads of a warp access \
        different words of the same bank.",
    source: "CUDA programming guide, shared memory: 32 banks of 4 bytes; Nsight Compute, memory tables: bank conflicts, as \
             wavefronts beyond the ideal. The threshold is APEX's own.",
    why: "A bank serves one word per cycle. If n threads of a warp access n different words of one bank, the \
        access takes n wavefronts.",
    change: "Pad the rows of the tile by one element, or swizzle the columns.",
    saving: "Unknown: it depends on whether shared memory limits the kernel.",
    verify: "wavefronts per request decrease (on the CPU device), and the kernel's duration decreases on a GPU",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    judge_counts(profile, |_, counts| fault(counts), |who| format!("{who}: shared-memory bank conflicts"))
}

fn fault(counts: &KernelCounts) -> Option<Fault> {
    let Traffic { requests, transactions, excess, .. } = counts.sums.all_traffic(Space::Shared);
    let [requests, wavefronts, excess] = [requests, transactions, excess].map(|count| count as f64);
    if wavefronts == 0.0 || excess <= EXCESS * wavefronts {
        return None;
    }
    let place = counts.worst(apex_counts::Fault::BankConflict).map_or_else(String::new, |spot| {
        let each = spot.total as f64 / spot.events.max(1) as f64;
        format!("{} takes {each:.1} wavefronts per request: ", spot.place.shown())
    });
    Some(Fault {
        evidence: vec![
            Evidence::new("wavefronts per request", counts.figure(wavefronts / requests), Unit::Count)
                .decrease_towards((wavefronts - excess) / requests),
            Evidence::new("excessive wavefronts", counts.figure(excess / wavefronts), Unit::Share)
                .decrease_towards(0.0),
        ],
        change: format!("{place}pad the rows of the tile by one element, or swizzle its columns"),
        saves: Err("it depends on what limits the kernel on a GPU"),
        threads: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{
        assert_clear, assert_finds, assert_unjudged, counted, kernel_of, profile_of,
    };
    use super::RULE;
    use apex_counts::{Direction, Space};

    #[test]
    fn names_the_line_and_the_wavefronts() {
        let finding = assert_finds(&RULE, counted(Space::Shared, Direction::Load, 96, 3072, 2976));
        assert_eq!(
            finding.change,
            "kernel.cu:7 takes 32.0 wavefronts per request: pad the rows of the tile by one element, or swizzle its columns"
        );
    }

    #[test]
    fn the_boundary_is_a_quarter() {
        assert_clear(&RULE, counted(Space::Shared, Direction::Load, 75, 100, 25));
        assert_finds(&RULE, counted(Space::Shared, Direction::Store, 74, 100, 26));
        assert_clear(&RULE, counted(Space::Global, Direction::Load, 74, 100, 26));
        assert_unjudged(&RULE, profile_of([kernel_of(1000, 128)]));
    }
}
