//! Memory that is allocated and freed again and again.

use trace::layout::MemoryKind;

use super::{Draft, Needs, Outcome, Rule, confidence, job_saving, time};
use crate::figure::Figure;
use crate::finding::{Evidence, Level, Scope, Severity, Unit};
use crate::profile::{IdleCause, Memory, Profile};
use crate::sums::SaturatingSum as _;

/// From so many on it is a loop.
const LOOP: u64 = 10;
/// A pair of `cuMemAllocAsync` and `cuMemFreeAsync`, nanoseconds: measured on an H200 at any size.
const POOL_PAIR_NS: f64 = 1_200.0;

pub(super) const RULE: Rule = Rule {
    id: "APEX-L23",
    slug: "repeated-allocation",
    title: "Memory is allocated and freed in a loop",
    severity: Severity::Medium,
    scope: Scope::Host,
    needs: Needs::Records,
    parent: None,
    idle: &[IdleCause::Allocating],
    detects: "At least 10 allocations, between first and last launch of a process, of a size that had been freed before; \
              stream-ordered allocations (pools) do not count.",
    source: "APEX. On an H200, allocating and freeing 16 MiB takes 85 us, 1 GiB 820 us, from a pool 1.2 us at any size.",
    why: "Allocating and freeing map and unmap memory, and wait for the device.",
    change: "Allocate once before the loop, or use a pool: cudaMallocAsync and cudaFreeAsync, or the framework's \
             caching allocator.",
    saving: "CPU time of these allocations and frees, less 1.2 us for each pair.",
    verify: "allocations among launches disappear, and the job's time falls",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let churn = |memory: &&Memory| memory.kind != MemoryKind::Pool && looped(memory) >= LOOP;
    let pairs = profile.memory.iter().filter(churn).map(looped).saturating_sum();
    if pairs == 0 {
        return Outcome::Clear;
    }
    let spent: f64 = profile.memory.iter().filter(churn).map(cost).sum();
    let saved = (spent - pairs as f64 * POOL_PAIR_NS).max(0.0);
    Outcome::found(Draft {
        summary: format!(
            "{pairs} allocations repeat a size that was freed before; with their frees they took {}",
            time(spent)
        ),
        evidence: vec![
            Evidence::new("repeated allocations", Figure::measured(pairs as f64), Unit::Count)
                .decrease_towards(0.0),
            Evidence::new("CPU time of these and of their frees", Figure::computed(spent), Unit::Nanoseconds)
                .decrease_towards(spent - saved),
        ],
        kernels: Vec::new(),
        change: None,
        saving: job_saving(profile, Figure::predicted(saved)),
        confidence: confidence(
            Level::Medium,
            "the calls go for sure; the job is faster as far as the device waited for them",
        ),
    })
}

/// Allocations in a loop of launches.
fn looped(memory: &Memory) -> u64 {
    memory.repeated.min(memory.among_launches)
}

/// Their part of the CPU time of all allocations and frees of the kind.
fn cost(memory: &Memory) -> f64 {
    memory.cpu_ns * looped(memory) as f64 / memory.allocations.max(1) as f64
}

#[cfg(test)]
mod tests {
    use trace::layout::MemoryKind::{Device, Pool};

    use super::super::fixture::{assert_clear_in, assert_finds_in, idle_during, memory, profile_with};
    use super::RULE;
    use crate::profile::{IdleCause, Memory, Profile};

    fn profile(memory: Memory) -> Profile {
        Profile { memory: vec![memory], ..profile_with([idle_during(IdleCause::Allocating, 1e9, 0.5)]) }
    }

    #[test]
    fn fires_on_a_loop() {
        // 100 allocations and frees of 50 us each pair, all of them repeated.
        let finding = assert_finds_in(&RULE, profile(memory(Device, 100, 100, 5e6)));
        assert!((finding.saving.time_ns.expect("a time").value - (5e6 - 100.0 * 1200.0)).abs() < 1.0);
    }

    #[test]
    fn the_boundary_is_ten() {
        assert_finds_in(&RULE, profile(memory(Device, 100, 10, 5e6)));
        assert_clear_in(&RULE, profile(memory(Device, 100, 9, 5e6)));
    }

    #[test]
    fn is_clear_on_pools_and_outside_of_launches() {
        assert_clear_in(&RULE, profile(memory(Pool, 100, 100, 5e6)));
        assert_clear_in(&RULE, profile(Memory { among_launches: 0, ..memory(Device, 100, 100, 5e6) }));
    }
}
