//! One block per multiprocessor, and the block waits at barriers.

use super::{Fault, Needs, Outcome, Rule, Subject, confidence, judge_kernels};
use crate::finding::{Evidence, Level, Scope, Severity, Unit};
use apex_profile::{Figure, Profile};

pub(super) const RULE: Rule = Rule {
    id: "APEX-L03",
    slug: "few-blocks-with-barriers",
    title: "Fewer than two blocks per SM in a kernel with barriers",
    severity: Severity::Low,
    scope: Scope::Kernel,
    needs: Needs::Records,
    parent: None,
    idle: &[],
    detects: "SMs <= blocks < 2 SMs, in a kernel with shared memory. Barriers are not recorded; blocks that share memory \
              synchronise. (Grids below the number of SMs are APEX-L02's.)",
    source: "Nsight Compute, launch statistics: fewer than two blocks per SM in a kernel that executes barriers.",
    why: "While the warps of a block wait at a barrier, no other block on the SM can run.",
    change: "Launch at least two blocks per SM: use smaller blocks, or divide the work into more blocks.",
    saving: "Unknown: the waiting time at barriers needs hardware counters.",
    verify: "there are at least two blocks per SM, and the kernel's duration decreases",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    judge_kernels(
        profile,
        confidence(
            Level::Low,
            "barriers are inferred from the use of shared memory, and their cost is unknown",
        ),
        fault,
        |who| format!("{who}: with fewer than two blocks per SM, no other block hides the time at barriers"),
    )
}

fn fault(Subject { kernel, sms, .. }: Subject<'_>) -> Option<Fault> {
    let blocks = kernel.blocks();
    let shared = kernel
        .attributes
        .map_or(0, |a| a.static_shared_bytes)
        .saturating_add(kernel.launch.dynamic_shared_bytes);
    let sms = u64::from(sms);
    if shared == 0 || !(sms..2 * sms).contains(&blocks) {
        return None;
    }
    let threads = kernel.block_threads();
    let half = threads / 2 / 32 * 32;
    Some(Fault {
        evidence: vec![
            Evidence::new("blocks", Figure::measured(blocks as f64), Unit::Count)
                .increase_towards((2 * sms) as f64),
            Evidence::new("shared memory per block", Figure::measured(shared.into()), Unit::Bytes),
        ],
        change: match half {
            0 => format!("divide the work over at least {} blocks instead of {blocks}", 2 * sms),
            _ => format!("use {half} instead of {threads} threads per block, and twice as many blocks"),
        },
        saves: Err("the waiting time at barriers needs hardware counters"),
        threads: Some(half).filter(|&half| half > 0),
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{SMS, assert_clear, assert_finds, kernel_of};
    use super::RULE;
    use apex_profile::Kernel;

    fn sharing(blocks: u32) -> Kernel {
        let kernel = kernel_of(blocks, 256);
        Kernel { launch: kernel.launch.with_dynamic_shared_bytes(4096), ..kernel }
    }

    #[test]
    fn fires_between_one_and_two_blocks_per_sm() {
        let finding = assert_finds(&RULE, sharing(SMS));
        assert_eq!(finding.change, "use 128 instead of 256 threads per block, and twice as many blocks");
        assert!(finding.saving.time_ns.is_none() && finding.saving.unknown_because.is_some());
        assert_finds(&RULE, sharing(2 * SMS - 1));
    }

    #[test]
    fn the_boundaries_belong_to_others() {
        assert_clear(&RULE, sharing(SMS - 1));
        assert_clear(&RULE, sharing(2 * SMS));
    }

    #[test]
    fn is_clear_without_shared_memory() {
        assert_clear(&RULE, kernel_of(SMS, 256));
    }
}
