//! Global memory accessed in pieces.

use super::{Fault, Needs, Outcome, Rule, judge_counts};
use crate::finding::{Evidence, Scope, Severity, Unit};
use apex_profile::{KernelCounts, Profile, Traffic};

/// Share of sectors from which on they are too many.
const EXCESS: f64 = 0.25;

pub(super) const RULE: Rule = Rule {
    id: "APEX-C31",
    slug: "uncoalesced-access",
    title: "Uncoalesced global accesses",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Counts,
    parent: None,
    idle: &[],
    detects: "More than 25% of the 32-byte sectors that loads and stores of global memory move are excess: beyond what \
              the same bytes would fill side by side.",
    source: "Nsight Compute, memory workload: uncoalesced global accesses, l1tex__average_t_sectors_per_request. The \
             threshold is APEX's own.",
    why: "A warp's access moves whole sectors. Where its threads' addresses lie apart, most of each sector is moved in vain, \
          and the caches hold less.",
    change: "Let neighbouring threads access neighbouring addresses: swap loops or indices, lay structures out as arrays of \
             their members, or go through shared memory.",
    saving: "Unknown: excess sectors cost bandwidth, which may or may not be what limits the kernel.",
    verify: "sectors per request fall (on the CPU device), and on a GPU the kernel's duration falls",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    judge_counts(
        profile,
        |_, counts| fault(counts),
        |who| format!("{who}: global accesses are not coalesced"),
    )
}

fn fault(counts: &KernelCounts) -> Option<Fault> {
    let accesses: Vec<&Traffic> =
        ["load", "store"].into_iter().filter_map(|direction| counts.traffic("global", direction)).collect();
    let sum = |of: fn(&Traffic) -> u64| accesses.iter().map(|traffic| of(traffic) as f64).sum::<f64>();
    let (requests, sectors, excess) = (sum(|t| t.requests), sum(|t| t.transactions), sum(|t| t.excess));
    if sectors == 0.0 || excess <= EXCESS * sectors {
        return None;
    }
    let place = counts.worst("uncoalesced").map_or_else(String::new, |spot| {
        let each = |sectors: u64| sectors as f64 / spot.events.max(1) as f64;
        format!(
            "{} takes {:.1} sectors per request where {:.1} would hold its bytes: ",
            spot.place.shown(),
            each(spot.total),
            each(spot.total - spot.excess.min(spot.total))
        )
    });
    Some(Fault {
        evidence: vec![
            Evidence::new("sectors per request", counts.figure(sectors / requests), Unit::Count)
                .decrease_towards((sectors - excess) / requests),
            Evidence::new("excess sectors", counts.figure(excess / sectors), Unit::Share)
                .decrease_towards(0.0),
        ],
        change: format!("{place}let neighbouring threads access neighbouring addresses"),
        saves: Err("what excess sectors cost depends on what limits the kernel on a GPU"),
        threads: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{
        assert_clear, assert_finds, assert_unjudged, counted, kernel_of, profile_of,
    };
    use super::super::percent;
    use super::{EXCESS, RULE};

    #[test]
    fn names_the_line_and_the_sectors() {
        let finding = assert_finds(&RULE, counted("global", "load", 100, 800, 400, "uncoalesced"));
        assert_eq!(
            finding.change,
            "kernel.cu:7 takes 8.0 sectors per request where 4.0 would hold its bytes: let neighbouring threads access \
             neighbouring addresses"
        );
        assert!(finding.saving.time_ns.is_none());
    }

    #[test]
    fn the_boundary_is_a_quarter() {
        assert_eq!(percent(EXCESS), "25%");
        assert_clear(&RULE, counted("global", "load", 100, 400, 100, "uncoalesced"));
        assert_finds(&RULE, counted("global", "store", 100, 400, 101, "uncoalesced"));
        // Atomics to one address after the other are as they are.
        assert_clear(&RULE, counted("global", "atomic", 100, 3200, 3000, "uncoalesced"));
    }

    #[test]
    fn without_counts_there_is_nothing_to_judge() {
        assert_unjudged(&RULE, profile_of([kernel_of(1000, 128)]));
    }
}
