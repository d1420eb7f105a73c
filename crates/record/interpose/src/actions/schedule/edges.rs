//! The edges of a batch: which launches wait for which.

use super::{Memory, heeds};
use crate::actions::queue::batch::{MOST, Node};
use crate::tables::spread;
use cuda_launch::{Dim3, LaunchConfig};
use launch_condition::{Given, KernelAccess, Span, Spans};

/// For each launch of a batch, the earlier launches on which its node depends, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Edges(pub [u32; MOST]);

impl Edges {
    /// Each launch waits for the one before it.
    pub const CHAIN: Edges = {
        let (mut edges, mut at) = ([0; MOST], 1);
        while at < MOST {
            edges[at] = 1 << (at - 1);
            at += 1;
        }
        Edges(edges)
    };

    /// The fewest edges that keep the order of all launches that share data.
    pub fn of(spans: &[Spans]) -> Edges {
        let (mut edges, mut reach) = ([0; MOST], [0_u32; MOST]);
        for (at, mine) in spans.iter().enumerate().take(MOST) {
            for before in (0..at).rev() {
                let is_behind = reach[at] >> before & 1 == 1;
                let is_near = before + 1 == at || heeds("schedule-neighbours");
                if !is_behind && is_near && must_wait(&spans[before], mine) {
                    let beyond = if heeds("schedule-reach") { reach[before] } else { (1 << before) - 1 };
                    edges[at] |= 1 << before;
                    reach[at] |= 1 << before | beyond;
                }
            }
        }
        if !heeds("schedule-last") {
            edges[spans.len().saturating_sub(1)] = 0;
        }
        Edges(edges)
    }

    /// Whether the first `count` launches run one after the other.
    pub fn are_chain(&self, count: usize) -> bool {
        self.0[..count] == Edges::CHAIN.0[..count]
    }

    /// A hash that distinguishes them from other edges of as many launches; 0 for a chain.
    pub fn number(&self, count: usize) -> u64 {
        if self.are_chain(count) || !heeds("schedule-pattern") {
            return u64::from(!self.are_chain(count));
        }
        self.0[..count].iter().fold(1, |number, &edges| spread(number ^ u64::from(edges))) | 1
    }
}

fn must_wait(before: &Spans, mine: &Spans) -> bool {
    let (Some(before), Some(mine)) = (before.known(), mine.known()) else { return heeds("schedule-unknown") };
    before.iter().any(|a| mine.iter().any(|b| overlap(a, b) && is_ordered(a.is_written, b.is_written)))
}

fn overlap(a: &Span, b: &Span) -> bool {
    a.start < b.end && b.start < a.end && (a.start == b.start || heeds("schedule-overlap"))
}

/// Whether the order of two accesses to the same memory matters.
fn is_ordered(writes_before: bool, writes: bool) -> bool {
    match (writes_before, writes) {
        (true, false) => heeds("schedule-read-after-write"),
        (false, true) => heeds("schedule-write-after-read"),
        (true, true) => heeds("schedule-write-after-write"),
        (false, false) => false,
    }
}

/// The memory of a launch.
pub fn spans(node: &Node, kernel: Option<&KernelAccess>, memory: &Memory) -> Spans {
    let Some(kernel) = kernel else { return Spans::UNKNOWN };
    let [gx, gy, gz, bx, by, bz, dynamic_shared_bytes] = node.dimensions;
    let (grid, block) = (Dim3::new(gx, gy, gz), Dim3::new(bx, by, bz));
    let [grid, block] = if heeds("schedule-dimensions") { [grid, block] } else { [Dim3::ONE; 2] };
    let config = LaunchConfig { grid, block, cluster: Dim3::ZERO, dynamic_shared_bytes };
    kernel.spans(&Given { config, parameters: node.bytes() }, memory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use launch_condition::{AccessedMemory, Allocations};

    /// Buffers of 64 KiB, as far apart from each other.
    struct Everything;

    impl Allocations for Everything {
        fn around(&self, address: u64) -> Option<(u64, u64)> {
            let (start, at) = (address >> 17 << 17, address & 0x1_ffff);
            (start > 0 && at < 0x1_0000).then_some((start, start + 0x1_0000))
        }
    }

    /// A launch that reads `from` and writes `to`, buffers by number; 0 is none.
    fn launch(to: u64, from: u64) -> Spans {
        let word = |offset, is_written| AccessedMemory { offset, is_written, ranges: None };
        let memory = Some(vec![word(0, true), word(8, false)]);
        let kernel = KernelAccess { name: String::new(), parameters: vec![0, 8], memory };
        let parameters = [(to << 17).to_le_bytes(), (from << 17).to_le_bytes()].concat();
        kernel.spans(&Given { config: LaunchConfig::new(1, 32), parameters: &parameters }, &Everything)
    }

    fn edges(launches: &[Spans]) -> Vec<u32> {
        Edges::of(launches).0[..launches.len()].to_vec()
    }

    #[test]
    fn launches_wait_for_those_with_which_they_share_what_one_writes() {
        let diamond = [launch(1, 0), launch(2, 1), launch(3, 1), launch(4, 2), launch(4, 3)];
        assert_eq!(edges(&diamond), [0, 1, 1, 0b10, 0b1100]);
        assert_eq!(edges(&[launch(1, 9), launch(2, 9), launch(9, 0)]), [0, 0, 0b11], "write after read");
        assert_eq!(edges(&[launch(1, 0), launch(1, 0), launch(1, 0)]), [0, 1, 0b10], "write after write");
        let barrier = [launch(1, 0), launch(2, 0), Spans::UNKNOWN, launch(3, 0), launch(1, 0)];
        assert_eq!(edges(&barrier), [0, 0, 0b11, 0b100, 0b100]);
        assert!(Edges::of(&[Spans::UNKNOWN; MOST]).are_chain(MOST));
        assert!(!Edges::of(&barrier).are_chain(5) && Edges::of(&barrier).are_chain(1));
    }
}
