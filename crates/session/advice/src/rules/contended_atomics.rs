//! Atomics by which the threads of a warp change the same words.

use super::{Fault, Needs, Outcome, Rule, judge_counts};
use crate::finding::{Evidence, Scope, Severity, Unit};
use apex_counts::{Direction, Space};
use apex_profile::{KernelCounts, Profile};

/// Minimum threads per request.
const THREADS: f64 = 16.0;
/// Maximum sectors per request: with more threads than words in these sectors, threads share words.
const SECTORS: f64 = 1.5;

/// Minimum share of these requests in the instructions: fewer are hidden behind the others.
const INSTRUCTIONS: f64 = 0.001;

pub(super) const RULE: Rule = Rule {
    id: "APEX-C68",
    slug: "contended-atomics",
    title: "Atomic contention within warps",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Counts,
    parent: None,
    idle: &[],
    detects: "Atomics on global memory with at least 16 threads and at most 1.5 sectors per request: \
        distinct words would need more sectors. These requests are at least 0.1% of the instructions.",
    source: "CUDA C++ Best Practices Guide; a sector has 32 bytes, so that 16 or more threads on 1 sector share words; an H200 executes up to 528 instructions of \
             warps while one address is updated once. The thresholds are APEX's own.",
    why: "The hardware serialises atomics on the same address.",
    change: "Reduce within the warp (__reduce_add_sync, __shfl_down_sync) or the block (shared memory) \
        first, so that one thread updates global memory; or give each block its own copy and sum the copies \
        at the end.",
    saving: "Unknown: the number of blocks that update an address at the same time is not counted.",
    verify: "atomic requests decrease",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    judge_counts(
        profile,
        |_, counts| fault(counts),
        |who| format!("{who}: many threads of a warp update the same words"),
    )
}

fn fault(counts: &KernelCounts) -> Option<Fault> {
    let atomics = counts.sums.traffic(Space::Global, Direction::Atomic);
    let threads = atomics.threads as f64 / atomics.requests.max(1) as f64;
    let instructions = counts.sums.total_warp_instructions() as f64;
    let is_rare = (atomics.requests as f64) < INSTRUCTIONS * instructions;
    if atomics.requests == 0 || is_rare || threads < THREADS || atomics.per_request() > SECTORS {
        return None;
    }
    Some(Fault {
        evidence: vec![
            Evidence::new("threads per atomic request", counts.figure(threads), Unit::Count)
                .decrease_towards(1.0),
            Evidence::new("sectors per atomic request", counts.figure(atomics.per_request()), Unit::Count),
        ],
        change: "reduce within the warp or block before the atomic".to_owned(),
        saves: Err("the number of blocks that update an address at the same time is not counted"),
        threads: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{assert_clear, assert_finds, counted};
    use super::RULE;
    use apex_counts::{Direction, InstructionClass, Space};

    #[test]
    fn fires_where_many_threads_share_a_sector() {
        assert_finds(&RULE, counted(Space::Global, Direction::Atomic, 100, 100, 0));
        assert_clear(&RULE, counted(Space::Global, Direction::Atomic, 100, 400, 0));
        assert_clear(&RULE, counted(Space::Global, Direction::Load, 100, 100, 0));
    }

    #[test]
    fn one_atomic_after_much_work_is_no_fault() {
        let among = |instructions: u64| {
            let mut kernel = counted(Space::Global, Direction::Atomic, 100, 100, 0);
            let counts = kernel.counts.as_mut().expect("counted");
            counts.sums.warp_instructions[InstructionClass::Single as usize] = instructions;
            kernel
        };
        assert_finds(&RULE, among(100_000));
        assert_clear(&RULE, among(100_001));
    }
}
