//! Kernels that load the same global memory many times.

use super::{Fault, Needs, Outcome, Rule, SECTOR, judge_counts};
use crate::finding::{Evidence, Scope, Severity, Unit};
use apex_counts::{Direction, Space};
use apex_profile::{KernelCounts, Profile, total};
use apex_trace::layout::MemoryKind;

/// Minimum number of times that the whole of the allocated memory is loaded.
const TIMES: f64 = 16.0;
/// Minimum share of loads from global memory among a warp's instructions.
const LOADS: f64 = 0.1;

pub(super) const RULE: Rule = Rule {
    id: "APEX-C86",
    slug: "repeated-loads",
    title: "The same global memory is loaded again and again",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Counts,
    parent: None,
    idle: &[],
    detects: "A launch that loads, in sectors, at least 16 times as many bytes from global memory as the program \
        has allocated, in at least a tenth of its instructions.",
    source: "NVIDIA, CUDA C++ Programming Guide, Shared Memory: the product of matrices with and without tiles. The thresholds are \
             APEX's own.",
    why: "Threads load values that their neighbours have loaded. Caches serve these loads, but each is an instruction, and \
        L1 serves only one request of a warp at a time.",
    change: "Load a tile once for each block into shared memory, and let each thread compute several results from values \
        in registers. For a product of matrices call cuBLAS.",
    saving: "Unknown: caches serve these loads at a rate that the counts do not tell. On an H200 a product of matrices takes 81% less time with tiles \
             (testing/corpus, naive_product).",
    verify: "requests of global loads decrease",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let allocated = allocated(profile);
    judge_counts(
        profile,
        |_, counts| fault(counts, allocated),
        |who| format!("{who}: loads the same global memory again and again"),
    )
}

/// Most bytes of device memory that were allocated at one time.
fn allocated(profile: &Profile) -> f64 {
    let of_device = profile
        .memory
        .iter()
        .filter(|memory| !matches!(memory.kind, MemoryKind::Pinned | MemoryKind::Pageable));
    total(of_device.map(|memory| memory.peak_bytes as f64))
}

fn fault(counts: &KernelCounts, allocated: f64) -> Option<Fault> {
    let loads = counts.sums.traffic(Space::Global, Direction::Load);
    let instructions = counts.sums.total_warp_instructions() as f64;
    let times = loads.transactions as f64 * SECTOR / counts.launches.max(1) as f64 / allocated;
    if allocated <= 0.0 || times < TIMES || (loads.requests as f64) < LOADS * instructions {
        return None;
    }
    Some(Fault {
        evidence: vec![
            Evidence::new(
                "loads of each allocated byte in a launch, at least",
                counts.figure(times),
                Unit::Count,
            )
            .decrease_towards(1.0),
            Evidence::new(
                "share of global loads among instructions",
                counts.figure(loads.requests as f64 / instructions),
                Unit::Share,
            ),
        ],
        change:
            "load a tile once for each block into shared memory, and compute several results in each thread"
                .to_owned(),
        saves: Err("caches serve these loads at a rate that the counts do not tell"),
        threads: None,
    })
}

#[cfg(test)]
mod tests {
    use apex_trace::layout::MemoryKind;

    use super::super::fixture::{assert_clear_in, assert_finds_in, counted, memory, profile_of};
    use super::RULE;
    use apex_counts::{Direction, InstructionClass, Space};
    use apex_profile::Profile;

    /// A launch of `requests` loads of four sectors among `instructions`, in 1 MiB of memory.
    fn loading(requests: u64, instructions: u64) -> Profile {
        let mut kernel = counted(Space::Global, Direction::Load, requests, 4 * requests, 0);
        let sums = &mut kernel.counts.as_mut().expect("counted").sums;
        sums.warp_instructions[InstructionClass::Integer as usize] = instructions;
        Profile { memory: vec![memory(MemoryKind::Device, 1, 0, 1e3)], ..profile_of([kernel]) }
    }

    #[test]
    fn fires_where_memory_is_loaded_many_times() {
        // 128 bytes for each request, 16 MiB in all.
        assert_finds_in(&RULE, loading(131_072, 1_000_000));
        assert_clear_in(&RULE, loading(131_071, 1_000_000));
        assert_clear_in(&RULE, loading(131_072, 1_310_721));
    }

    #[test]
    fn memory_whose_size_is_unknown_is_not_judged_by_it() {
        assert_clear_in(&RULE, Profile { memory: Vec::new(), ..loading(1 << 20, 1 << 21) });
    }
}
