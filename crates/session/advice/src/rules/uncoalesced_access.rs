//! Uncoalesced accesses to global memory.

use super::{Fault, Needs, Outcome, Rule, judge_counts};
use crate::finding::{Evidence, Scope, Severity, Unit};
use apex_counts::{Space, Traffic};
use apex_profile::{KernelCounts, Profile};

/// Minimum share of excessive sectors for a finding.
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
    detects: "More than 25% of the 32-byte sectors of global loads and stores are excessive: contiguous \
        accesses to the same number of bytes would not need them; and requests take more sectors than a full \
        warp of consecutive accesses (otherwise threads are inactive, see APEX-C33). One excessive sector \
        per request is no finding: consecutive addresses that do not begin at a sector need it.",
    source: "Nsight Compute, memory workload: uncoalesced global accesses, l1tex__average_t_sectors_per_request. The \
             threshold is APEX's own.",
    why: "A request transfers whole sectors. If the addresses of a warp's threads are scattered, most bytes \
        of each sector are unused, and the caches hold less useful data.",
    change: "Access consecutive addresses from consecutive threads: swap loops or indices, store structures \
        of arrays instead of arrays of structures, or stage the data in shared memory.",
    saving: "Unknown: it depends on whether memory bandwidth limits the kernel.",
    verify: "sectors per request decrease (on the CPU device), and the kernel's duration decreases on a GPU",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    judge_counts(profile, |_, counts| fault(counts), |who| format!("{who}: uncoalesced global accesses"))
}

fn fault(counts: &KernelCounts) -> Option<Fault> {
    let Traffic { requests, threads, bytes, transactions, excess } =
        counts.sums.loads_and_stores(Space::Global);
    let [requests, threads, bytes] = [requests, threads, bytes].map(|count| count as f64);
    let [sectors, excess] = [transactions, excess].map(|count| count as f64);
    // A full warp of consecutive accesses to values of B bytes takes B sectors. A request that
    // takes no more has idle threads between its addresses: that is divergence.
    let consecutive = requests * bytes / threads.max(1.0);
    if excess <= EXCESS * sectors || sectors <= consecutive {
        return None;
    }
    let worst = counts.worst(apex_counts::Fault::Uncoalesced);
    // As in a stencil over bytes: the addresses of a request begin within a sector. A few requests
    // wrap around an edge and take a third sector.
    let begins_within = |excess: f64, requests: f64| excess < 1.5 * requests;
    if begins_within(excess, requests)
        && worst.is_none_or(|spot| begins_within(spot.excess as f64, spot.events as f64))
    {
        return None;
    }
    let place = worst.map_or_else(String::new, |spot| {
        let each = |sectors: u64| sectors as f64 / spot.events.max(1) as f64;
        format!(
            "{} takes {:.1} sectors per request instead of {:.1}: ",
            spot.place.shown(),
            each(spot.total),
            each(spot.total - spot.excess.min(spot.total))
        )
    });
    Some(Fault {
        evidence: vec![
            Evidence::new("sectors per request", counts.figure(sectors / requests), Unit::Count)
                .decrease_towards((sectors - excess) / requests),
            Evidence::new("excessive sectors", counts.figure(excess / sectors), Unit::Share)
                .decrease_towards(0.0),
        ],
        change: format!("{place}access consecutive addresses from consecutive threads"),
        saves: Err("it depends on what limits the kernel on a GPU"),
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
    use apex_counts::{Direction, Space, Traffic};
    use apex_profile::Kernel;

    fn loads(kernel: &mut Kernel) -> &mut Traffic {
        let sums = &mut kernel.counts.as_mut().expect("counted").sums;
        &mut sums.traffic[Space::Global as usize][Direction::Load as usize]
    }

    #[test]
    fn names_the_line_and_the_sectors() {
        let finding = assert_finds(&RULE, counted(Space::Global, Direction::Load, 100, 800, 400));
        assert_eq!(
            finding.change,
            "kernel.cu:7 takes 8.0 sectors per request instead of 4.0: access consecutive addresses from consecutive \
             threads"
        );
        assert!(finding.saving.time_ns.is_none());
    }

    #[test]
    fn the_boundary_is_a_quarter() {
        assert_eq!(percent(EXCESS), "25%");
        assert_clear(&RULE, counted(Space::Global, Direction::Load, 100, 800, 200));
        assert_finds(&RULE, counted(Space::Global, Direction::Store, 100, 800, 201));
        // Atomics to one address after the other are as they are.
        assert_clear(&RULE, counted(Space::Global, Direction::Atomic, 100, 3200, 3000));
    }

    #[test]
    fn inactive_threads_between_consecutive_addresses_are_no_scattered_access() {
        // Half of the threads of each warp access every other value: 4 sectors where 2 would do.
        let half = |sectors: u64, excess: u64| {
            let mut kernel = counted(Space::Global, Direction::Load, 100, 100 * sectors, 100 * excess);
            let traffic = loads(&mut kernel);
            (traffic.threads, traffic.bytes) = (100 * 16, 100 * 64);
            kernel
        };
        assert_clear(&RULE, half(4, 2));
        assert_finds(&RULE, half(5, 3));
    }

    #[test]
    fn consecutive_addresses_may_begin_within_a_sector() {
        // Bytes of a full warp need 1 sector.
        let bytes = |sectors: u64| {
            let excess = 100 * (sectors - 1);
            let mut kernel = counted(Space::Global, Direction::Load, 100, 100 * sectors, excess);
            loads(&mut kernel).bytes = 100 * 32;
            kernel
        };
        assert_clear(&RULE, bytes(2));
        assert_finds(&RULE, bytes(3));
    }

    #[test]
    fn without_counts_there_is_nothing_to_judge() {
        assert_unjudged(&RULE, profile_of([kernel_of(1000, 128)]));
    }
}
