//! Which launches wait for which, and the longest chain of them.
//!
//! A launch waits for each earlier one that shares memory with it which one of the two writes, or
//! of which the accesses are unknown. Waits that follow from others are left out, so that the graph
//! has as few edges as the order needs. A launch waits for earlier ones only: there are no circles.

use apex_profile::FlowLaunch;
use launch_condition::{Span, Spans};

/// For each launch, the earlier ones that it waits for, without those that these wait for.
pub(crate) fn waits(spans: &[Spans]) -> Vec<Vec<usize>> {
    let mut reach: Vec<Vec<bool>> = Vec::new();
    let mut waits = Vec::new();
    for (at, mine) in spans.iter().enumerate() {
        let (mut behind, mut own) = (vec![false; spans.len()], Vec::new());
        for before in (0..at).rev() {
            if !behind[before] && must_wait(&spans[before], mine) {
                own.push(before);
                behind[before] = true;
                behind.iter_mut().zip(&reach[before]).for_each(|(mine, theirs)| *mine |= theirs);
            }
        }
        own.reverse();
        waits.push(own);
        reach.push(behind);
    }
    waits
}

fn must_wait(before: &Spans, mine: &Spans) -> bool {
    let (Some(before), Some(mine)) = (before.known(), mine.known()) else { return true };
    let conflict = |a: &Span, b: &Span| (a.is_written || b.is_written) && a.start < b.end && b.start < a.end;
    before.iter().any(|a| mine.iter().any(|b| conflict(a, b)))
}

/// The chain of waiting launches that takes longest, and its time in nanoseconds.
pub(crate) fn longest_chain(launches: &[FlowLaunch]) -> (Vec<usize>, f64) {
    let mut ends: Vec<f64> = Vec::new();
    let mut last_before = Vec::new();
    for launch in launches {
        let latest = launch.waits_for.iter().copied().max_by(|&a, &b| ends[a].total_cmp(&ends[b]));
        ends.push(latest.map_or(0.0, |before| ends[before]) + launch.ns);
        last_before.push(latest);
    }
    let mut at = (0..launches.len()).max_by(|&a, &b| ends[a].total_cmp(&ends[b]));
    let longest = at.map_or(0.0, |at| ends[at]);
    let mut chain = Vec::new();
    while let Some(launch) = at {
        chain.push(launch);
        at = last_before[launch];
    }
    chain.reverse();
    (chain, longest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use launch_condition::{AccessedMemory, Allocations, Given, KernelAccess};

    /// Buffers of 64 KiB, as far apart from each other.
    struct Everything;

    impl Allocations for Everything {
        fn around(&self, address: u64) -> Option<(u64, u64)> {
            let start = address >> 17 << 17;
            (start > 0 && address < start + 0x1_0000).then_some((start, start + 0x1_0000))
        }
    }

    /// A launch that reads `from` and writes `to`, buffers by number; 0 is none.
    fn launch(to: u64, from: u64) -> Spans {
        let word = |offset, is_written| AccessedMemory { offset, is_written, ranges: None };
        let memory = Some(vec![word(0, true), word(8, false)]);
        let kernel = KernelAccess { name: String::new(), parameters: vec![0, 8], memory };
        let parameters = [(to << 17).to_le_bytes(), (from << 17).to_le_bytes()].concat();
        let config = cuda_launch::LaunchConfig::new(1, 32);
        kernel.spans(&Given { config, parameters: &parameters }, &Everything)
    }

    fn timed(waits: Vec<Vec<usize>>, ns: &[f64]) -> Vec<FlowLaunch> {
        let one = |(waits_for, &ns)| FlowLaunch { kernel: 0, ns, share: 0.1, is_known: true, waits_for };
        waits.into_iter().zip(ns).map(one).collect()
    }

    #[test]
    fn data_orders_launches_and_nothing_else() {
        let diamond = [launch(1, 0), launch(2, 1), launch(3, 1), launch(4, 2), launch(4, 3)];
        assert_eq!(waits(&diamond), [vec![], vec![0], vec![0], vec![1], vec![2, 3]]);
        assert_eq!(waits(&[launch(1, 9), launch(2, 9), launch(9, 0)]), [vec![], vec![], vec![0, 1]]);
        let barrier = [launch(1, 0), launch(2, 0), Spans::UNKNOWN, launch(3, 0), launch(1, 0)];
        assert_eq!(waits(&barrier), [vec![], vec![], vec![0, 1], vec![2], vec![2]]);
    }

    #[test]
    fn the_longest_chain_is_one_of_time() {
        let waits = vec![vec![], vec![0], vec![0], vec![1, 2]];
        let launches = timed(waits, &[1.0, 2.0, 5.0, 1.0]);
        assert_eq!(longest_chain(&launches), (vec![0, 2, 3], 7.0));
        assert_eq!(longest_chain(&[]), (vec![], 0.0));
    }
}
