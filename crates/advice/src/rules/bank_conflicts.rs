//! Shared memory whose banks are in each other's way.

use super::{Fault, Needs, Outcome, Rule, judge_counts};
use crate::finding::{Evidence, Scope, Severity, Unit};
use apex_profile::{KernelCounts, Profile, Traffic};

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
    let accesses: Vec<&Traffic> = counts.traffic.iter().filter(|traffic| traffic.space == "shared").collect();
    let sum = |of: fn(&Traffic) -> u64| accesses.iter().map(|traffic| of(traffic) as f64).sum::<f64>();
    let (requests, wavefronts, excess) = (sum(|t| t.requests), sum(|t| t.transactions), sum(|t| t.excess));
    if wavefronts == 0.0 || excess <= EXCESS * wavefronts {
        return None;
    }
    let place = counts.worst("bank_conflict").map_or_else(String::new, |spot| {
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

    #[test]
    fn names_the_line_and_the_wavefronts() {
        let finding = assert_finds(&RULE, counted("shared", "load", 96, 3072, 2976, "bank_conflict"));
        assert_eq!(
            finding.change,
            "kernel.cu:7 takes 32.0 wavefronts per request: pad the rows of the tile by one element, or swizzle its columns"
        );
    }

    #[test]
    fn the_boundary_is_a_quarter() {
        assert_clear(&RULE, counted("shared", "load", 75, 100, 25, "bank_conflict"));
        assert_finds(&RULE, counted("shared", "store", 74, 100, 26, "bank_conflict"));
        assert_clear(&RULE, counted("global", "load", 74, 100, 26, "uncoalesced"));
        assert_unjudged(&RULE, profile_of([kernel_of(1000, 128)]));
    }
}
