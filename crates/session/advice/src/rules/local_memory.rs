//! Local memory: the part of a thread's data that is not in registers.

use occupancy::DeviceLimits;

use super::{Fault, Needs, Outcome, Rule, SECTOR, Subject, bytes, confidence, judge_counts, judge_kernels};
use crate::finding::{Evidence, Level, Scope, Severity, Unit};
use apex_counts::{Space, Traffic};
use apex_profile::{Figure, KernelCounts, Profile};

/// Minimum share of local memory in the sectors of local and global memory.
const SECTORS: f64 = 0.25;
/// Minimum share of local accesses in the instructions.
const INSTRUCTIONS: f64 = 0.05;

const REMEDY: &str = "index arrays by constants (unroll the loops over them with #pragma unroll), so that \
    their elements are in registers; otherwise make them smaller, or put them into shared memory";

pub(super) const ACCESSES: Rule = Rule {
    id: "APEX-C79",
    slug: "local-memory-accesses",
    title: "Local memory instead of registers",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Counts,
    parent: None,
    idle: &[],
    detects: "Accesses to local memory are at least 5% of the instructions, and at least 25% of the 32-byte \
        sectors of local and global memory. Local memory is taken to need one sector for every 32 bytes that threads access, which \
        is the minimum. Register spills are not counted, because the assembler adds them after PTX.",
    source: "CUDA C++ Best Practices Guide, local memory; Nsight Compute, memory tables. The thresholds are APEX's own.",
    why: "An array that is indexed by a variable cannot be in registers. The compiler places it in local \
        memory, which is device memory: its accesses take the latency and bandwidth of the L1 cache, \
        and beyond it those of L2 and DRAM.",
    change: "Index arrays by constants (unroll the loops over them), make them smaller, or put them into \
        shared memory.",
    saving: "Unknown: it depends on how many accesses the L1 cache serves.",
    verify: "local requests decrease (on the CPU device), and the kernel's duration decreases on a GPU",
    judge: judge_accesses,
};

pub(super) const SIZE: Rule = Rule {
    id: "APEX-L80",
    slug: "local-memory-size",
    title: "Local memory exceeds the L1 cache",
    severity: Severity::Low,
    scope: Scope::Kernel,
    needs: Needs::Records,
    parent: None,
    idle: &[],
    detects: "Local memory per thread x the threads that an SM holds (theoretical occupancy) exceeds what L1 cache \
        and shared memory have together. A launch with fewer threads is judged by those that an SM gets. Where \
        the CPU device counted accesses, APEX-C79 judges them instead.",
    source: "The driver's function attribute LOCAL_SIZE_BYTES, occupancy, and the device's shared memory per SM, to which the \
             L1 cache adds at most 32 KiB. The threshold is APEX's own.",
    why: "Local memory has a thread's spilled registers and the arrays that it indexes by variables. What \
        the L1 cache cannot hold goes to L2 and DRAM.",
    change: "Spilled registers (-Xptxas -v prints them): allow more registers (__launch_bounds__, \
        -maxrregcount), or keep fewer values live. Arrays: index them by constants (unroll the loops over \
        them), make them smaller, or put them into shared memory.",
    saving: "Unknown: how much of its local memory a thread accesses, and how often, is not recorded.",
    verify: "local memory per thread decreases, and the kernel's duration decreases",
    judge: judge_size,
};

fn judge_accesses(profile: &Profile) -> Outcome {
    judge_counts(
        profile,
        |_, counts| accesses(counts),
        |who| format!("{who}: local memory instead of registers"),
    )
}

fn accesses(counts: &KernelCounts) -> Option<Fault> {
    let Traffic { requests, bytes, .. } = counts.sums.all_traffic(Space::Local);
    let requests = requests as f64;
    let (local, global) = (bytes as f64 / SECTOR, counts.sums.global_sectors() as f64);
    let sectors = local / (local + global).max(1.0);
    let instructions = requests / counts.sums.total_warp_instructions().max(1) as f64;
    if sectors < SECTORS || instructions < INSTRUCTIONS {
        return None;
    }
    Some(Fault {
        evidence: vec![
            Evidence::new("local accesses of the instructions", counts.figure(instructions), Unit::Share)
                .decrease_towards(0.0),
            Evidence::new("local of local and global sectors", counts.figure(sectors), Unit::Share)
                .decrease_towards(0.0),
        ],
        change: REMEDY.to_owned(),
        saves: Err("it depends on how many accesses the L1 cache serves"),
        threads: None,
    })
}

fn judge_size(profile: &Profile) -> Outcome {
    judge_kernels(
        profile,
        confidence(
            Level::Low,
            "an upper bound: how much of its local memory a thread accesses is not recorded",
        ),
        size,
        |who| format!("{who}: local memory of the resident threads exceeds the L1 cache"),
    )
}

fn size(Subject { kernel, geometry, sms, profile }: Subject<'_>) -> Option<Fault> {
    if kernel.counts.is_some() || profile.on_cpu_device() {
        return None;
    }
    let each = kernel.attributes?.local_bytes;
    let limits = profile.devices.get(kernel.device?)?.limits()?;
    // Blocks that the fullest SM gets, of those that it can hold.
    let blocks = kernel.blocks().div_ceil(u64::from(sms.max(1))).min(geometry.occupancy.blocks_per_sm.into());
    let threads = blocks.saturating_mul(kernel.block_threads().into());
    let resident = threads.saturating_mul(each.into());
    let cache = cache_bytes(&limits);
    if cache == 0 || resident <= cache {
        return None;
    }
    Some(Fault {
        evidence: vec![
            Evidence::new("local memory per thread", Figure::measured(each.into()), Unit::Bytes)
                .decrease_towards((cache / threads.max(1)) as f64),
            Evidence::new("local memory of an SM's threads", Figure::computed(resident as f64), Unit::Bytes)
                .decrease_towards(cache as f64),
        ],
        change: format!(
            "reduce local memory per thread from {}: allow more registers if they spill (-Xptxas -v, \
                __launch_bounds__, -maxrregcount), index arrays by constants, or make them smaller",
            bytes(each.into())
        ),
        saves: Err("how much of its local memory a thread accesses is not recorded"),
        threads: None,
    })
}

/// The most that L1 cache and shared memory of an SM have together, bytes; 0 if unknown. Where
/// shared memory has all that it can, the cache keeps 28 KiB (A100, H100) or 32 KiB (T4).
fn cache_bytes(limits: &DeviceLimits) -> u64 {
    const BESIDE_SHARED: u64 = 32 << 10;
    match limits.carveouts_kib.last() {
        Some(&shared) => (u64::from(shared) << 10) + BESIDE_SHARED,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{
        assert_clear, assert_clear_in, assert_finds, assert_unjudged, counted, kernel_of, on_cpu_device,
        profile_of,
    };
    use super::{ACCESSES, SIZE};
    use apex_counts::{Direction, InstructionClass, Space};
    use apex_profile::Kernel;

    /// Returns a kernel with counts of local accesses to 4 bytes by whole warps, which take 4
    /// sectors, beside 400 sectors of global memory.
    fn accessing(requests: u64, instructions: u64) -> Kernel {
        let mut kernel = counted(Space::Global, Direction::Load, 100, 400, 0);
        let sums = &mut kernel.counts.as_mut().expect("counted").sums;
        *sums += &counted(Space::Local, Direction::Load, requests, 0, 0).counts.expect("counted").sums;
        sums.warp_instructions[InstructionClass::Local as usize] = requests;
        sums.warp_instructions[InstructionClass::Single as usize] = instructions - requests;
        kernel
    }

    /// Returns a kernel with this local memory per thread, in blocks of 256 threads of which an SM
    /// holds eight.
    fn of_size(blocks: u32, local_bytes: u32) -> Kernel {
        let mut kernel = kernel_of(blocks, 256);
        kernel.attributes.as_mut().expect("known").local_bytes = local_bytes;
        kernel
    }

    #[test]
    fn names_the_remedy_and_promises_nothing() {
        let finding = assert_finds(&ACCESSES, accessing(1000, 4000));
        assert!(finding.change.starts_with("index arrays by constants"), "{}", finding.change);
        assert!(finding.saving.time_ns.is_none() && finding.saving.unknown_because.is_some());
    }

    #[test]
    fn the_boundaries_are_a_quarter_of_the_sectors_and_a_twentieth_of_the_instructions() {
        // A request takes 4 sectors: 34 of them are more than a quarter beside 400, 33 are less.
        assert_finds(&ACCESSES, accessing(34, 100));
        assert_clear(&ACCESSES, accessing(33, 100));
        assert_finds(&ACCESSES, accessing(100, 2000));
        assert_clear(&ACCESSES, accessing(100, 2001));
        assert_clear(&ACCESSES, counted(Space::Global, Direction::Load, 100, 400, 0));
        assert_unjudged(&ACCESSES, profile_of([kernel_of(1000, 128)]));
    }

    #[test]
    fn a_size_matters_from_the_caches_size_on() {
        // 260 KiB at most: 2048 threads with 130 bytes each.
        assert_clear(&SIZE, of_size(10_000, 128));
        let finding = assert_finds(&SIZE, of_size(10_000, 136));
        assert!(
            finding.change.starts_with("reduce local memory per thread from 136 B"),
            "{}",
            finding.change
        );
        assert!(finding.saving.time_ns.is_none() && finding.saving.unknown_because.is_some());
    }

    #[test]
    fn threads_that_a_launch_does_not_have_take_no_local_memory() {
        // One block for each SM.
        assert_clear(&SIZE, of_size(132, 1024));
        assert_finds(&SIZE, of_size(132, 1048));
    }

    #[test]
    fn counts_judge_instead_of_the_size() {
        let with_counts = Kernel { counts: accessing(33, 100).counts, ..of_size(10_000, 1024) };
        assert_clear(&SIZE, with_counts);
        assert_clear_in(&SIZE, on_cpu_device(profile_of([of_size(10_000, 1024)])));
    }
}
