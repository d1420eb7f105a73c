//! A kernel of which too few warps fit on a multiprocessor.

use occupancy::{DeviceLimits, Limiter, what_if};

use super::{Fault, Needs, Outcome, Rule, Subject, bytes, confidence, judge_kernels, language, percent};
use crate::finding::{Evidence, Level, Scope, Severity, Unit};
use apex_profile::{Figure, Kernel, Profile};

/// Minimum theoretical occupancy without a finding.
const ENOUGH: f64 = 0.8;

pub(super) const RULE: Rule = Rule {
    id: "APEX-L05",
    slug: "low-theoretical-occupancy",
    title: "Low theoretical occupancy",
    severity: Severity::Low,
    scope: Scope::Kernel,
    needs: Needs::Records,
    parent: None,
    idle: &[],
    detects: "Theoretical occupancy < 80%, limited by shared memory, warps or blocks; or by registers, where \
        another block size with the same registers has 80%. A grid with at most one block for each SM \
        is not judged. The rule does not recommend fewer registers per \
        thread, because registers hold a thread's operations in flight.",
    source: "Nsight Compute, occupancy: theoretical occupancy below 80%.",
    why: "Fewer resident warps hide less latency. Kernels with high instruction-level parallelism (matrix \
        products on tensor cores) do not need high occupancy.",
    change: "Reduce the usage of the limiting resource, or change the block size.",
    saving: "Unknown: hardware counters are needed to see whether latency is already hidden. The bound is \
        what Nsight Compute prints, 1 - theoretical occupancy.",
    verify: "theoretical occupancy increases, and the kernel's duration decreases (undo the change if only \
        occupancy increases)",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    judge_kernels(
        profile,
        confidence(
            Level::Low,
            "effective only if latency is not hidden yet, which only hardware counters show",
        ),
        fault,
        |who| format!("{who}: theoretical occupancy below {}", percent(ENOUGH)),
    )
}

fn fault(Subject { kernel, geometry, sms, profile }: Subject<'_>) -> Option<Fault> {
    let occupancy = &geometry.occupancy;
    let fraction = occupancy.fraction();
    // With a block for each SM at most, it does not matter how many more would fit.
    if fraction >= ENOUGH || occupancy.blocks_per_sm == 0 || kernel.blocks() <= u64::from(sms) {
        return None;
    }
    let limits = profile.devices.get(kernel.device?)?.limits()?;
    let limiters: Vec<&str> = occupancy.limiters().map(Limiter::name).collect();
    let mut evidence = vec![
        Evidence::new("theoretical occupancy", Figure::computed(fraction), Unit::Share)
            .increase_towards(ENOUGH),
        Evidence::new("blocks per SM", Figure::computed(occupancy.blocks_per_sm.into()), Unit::Count),
    ];
    for limiter in occupancy.limiters() {
        let name = format!("blocks that {} admit", limiter.name());
        evidence.push(Evidence::new(name, Figure::computed(occupancy.blocks_per_sm.into()), Unit::Count));
    }
    let better = better_block_size(&limits, kernel);
    if better.is_none() && occupancy.limiters().all(|limiter| limiter == Limiter::Registers) {
        return None;
    }
    let change = match better {
        Some((better, then)) => Some(format!(
            "use {better} instead of {} threads per block: theoretical occupancy becomes {}{}",
            kernel.block_threads(),
            percent(then),
            if_shared_memory_stays(kernel)
        )),
        None => less_of_a_resource(&limits, kernel, occupancy.blocks_per_sm),
    };
    Some(Fault {
        evidence,
        change: change.unwrap_or_else(|| format!("{} limits it: use less", limiters.join(" and "))),
        saves: Err("hardware counters are needed to see whether latency is already hidden"),
        threads: better.map(|(threads, _)| threads),
    })
}

/// A block size whose theoretical occupancy is high enough, and that occupancy. With dynamic shared
/// memory, which often grows with the block, there is none.
fn better_block_size(limits: &DeviceLimits, kernel: &Kernel) -> Option<(u32, f64)> {
    let attributes = kernel.attributes.filter(|_| kernel.launch.dynamic_shared_bytes == 0)?;
    let (better, then) = what_if::best_block_size(limits, &attributes, 0, kernel.block_threads())?;
    (then.fraction() >= ENOUGH).then(|| (better, then.fraction()))
}

/// An array in static shared memory may have an element for each thread. How large it is in another
/// block is then unknown.
fn if_shared_memory_stays(kernel: &Kernel) -> String {
    match kernel.attributes.map_or(0, |attributes| attributes.static_shared_bytes) {
        0 => String::new(),
        shared => format!(
            ", if the {} of static shared memory do not depend on the block size",
            bytes(shared.into())
        ),
    }
}

/// The smallest step that admits one more block: less of the limiting resource.
fn less_of_a_resource(limits: &DeviceLimits, kernel: &Kernel, blocks: u32) -> Option<String> {
    let attributes = kernel.attributes?;
    let (threads, dynamic) = (kernel.block_threads(), kernel.launch.dynamic_shared_bytes);
    let now = occupancy::theoretical(limits, &attributes, threads, dynamic);
    let limited_by = |limiter| now.limit(limiter) == Some(blocks);
    if limited_by(Limiter::Registers)
        && let Some(fewer) = what_if::registers_for(limits, &attributes, threads, dynamic, blocks + 1)
    {
        return Some(format!(
            "reduce registers per thread from {} to {fewer} to fit {} instead of {blocks} blocks per SM: \
                {}, and check that nothing spills",
            attributes.registers,
            blocks + 1,
            language::limit_of_registers(kernel, fewer, blocks + 1)
        ));
    }
    if limited_by(Limiter::SharedMemory)
        && let Some(less) = what_if::shared_for(limits, &attributes, threads, dynamic, blocks + 1)
    {
        let used = u64::from(attributes.static_shared_bytes) + u64::from(dynamic);
        return Some(format!(
            "reduce shared memory per block from {} to {} to fit {} instead of {blocks} blocks per SM",
            bytes(used),
            bytes(less.into()),
            blocks + 1
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{SMS, assert_clear, assert_finds, kernel_of, with_registers};
    use super::RULE;
    use apex_profile::Kernel;

    #[test]
    fn what_threads_hold_in_registers_is_no_fault() {
        assert_clear(&RULE, with_registers(10_000, 256, 96));
    }

    #[test]
    fn names_fewer_bytes() {
        let kernel = kernel_of(10_000, 128);
        let launch = kernel.launch.with_dynamic_shared_bytes(119 * 1024);
        let finding = assert_finds(&RULE, Kernel { launch, ..kernel });
        assert_eq!(
            finding.change,
            "reduce shared memory per block from 119 KiB to 113 KiB to fit 2 instead of 1 blocks per SM"
        );
    }

    #[test]
    fn names_a_better_block_size() {
        // 32 blocks of one warp are half of what an SM holds.
        let finding = assert_finds(&RULE, kernel_of(100_000, 32));
        assert!(finding.change.starts_with("use 64 instead of 32 threads per block"), "{}", finding.change);
    }

    #[test]
    fn an_array_in_shared_memory_may_depend_on_the_block() {
        let mut kernel = kernel_of(100_000, 32);
        kernel.attributes.as_mut().expect("known").static_shared_bytes = 1024;
        let finding = assert_finds(&RULE, kernel);
        let condition = ", if the 1.00 KiB of static shared memory do not depend on the block size";
        assert!(finding.change.ends_with(condition), "{}", finding.change);
    }

    #[test]
    fn with_a_block_for_each_sm_at_most_occupancy_does_not_matter() {
        assert_clear(&RULE, kernel_of(SMS, 32));
        assert_finds(&RULE, kernel_of(SMS + 1, 32));
    }

    #[test]
    fn the_boundary_is_80_percent() {
        // 48 of 64 warps are 75%: registers per partition decide, and no other block size helps.
        assert_clear(&RULE, with_registers(10_000, 128, 32));
        assert_clear(&RULE, with_registers(10_000, 128, 40));
        // Two blocks of 832 threads are 52 warps.
        assert_clear(&RULE, kernel_of(10_000, 832));
        assert_finds(&RULE, kernel_of(10_000, 800));
    }
}
