//! A block whose last warp is partly empty.

use super::{Fault, Needs, Outcome, Rule, Subject, confidence, judge_kernels, up_to};
use crate::finding::{Evidence, Level, Scope, Severity, Unit};
use apex_profile::{Figure, Profile};

pub(super) const RULE: Rule = Rule {
    id: "APEX-L01",
    slug: "block-not-warp-multiple",
    title: "Block size not a multiple of the warp size",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Records,
    parent: None,
    idle: &[],
    detects: "The block size is not a multiple of the warp size.",
    source: "Nsight Compute, launch statistics: block size not a multiple of 32; it suggests 128 to 256 threads.",
    why: "The SM schedules whole warps. Lanes without a thread occupy issue slots and registers without \
        doing work.",
    change: "Use a block size that is a multiple of 32, and keep the kernel's bounds check.",
    saving: "Share of lanes without a thread: (1 / warps) (1 - threads in the last warp / 32).",
    verify: "block efficiency is 100%, and the kernel's duration decreases",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    judge_kernels(
        profile,
        confidence(Level::Medium, "full saving if issue slots limit the kernel, less if memory does"),
        fault,
        |who| format!("{who}: the last warp of each block is partly empty"),
    )
}

fn fault(Subject { kernel, geometry, sms, .. }: Subject<'_>) -> Option<Fault> {
    let threads = kernel.block_threads();
    let idle = 1.0 - geometry.block_efficiency;
    if idle <= 0.0 || kernel.blocks() < u64::from(sms) {
        return None;
    }
    let up = threads.checked_next_multiple_of(32).unwrap_or(threads);
    let most = kernel.attributes.map_or(0, |attributes| attributes.max_threads_per_block);
    let better = if most == 0 || up <= most { up } else { (threads / 32 * 32).max(32) };
    let block = Evidence::new("threads per block", Figure::measured(threads.into()), Unit::Count);
    Some(Fault {
        evidence: vec![
            if better > threads {
                block.increase_towards(better.into())
            } else {
                block.decrease_towards(better.into())
            },
            Evidence::new("block efficiency", Figure::computed(geometry.block_efficiency), Unit::Share)
                .increase_towards(1.0),
        ],
        change: format!("use {better} instead of {threads} threads per block, and adapt the grid"),
        saves: Ok(up_to(idle)),
        threads: Some(better),
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{
        assert_clear, assert_finds, assert_finds_in, counted, kernel_of, on_cpu_device, profile_of, timed,
    };
    use super::RULE;
    use apex_counts::{Direction, Space};
    use apex_profile::Kernel;

    #[test]
    fn fires_on_100_threads() {
        let finding = assert_finds(&RULE, kernel_of(1000, 100));
        assert_eq!(finding.change, "use 128 instead of 100 threads per block, and adapt the grid");
        let saved = finding.kernels[0].saving.of_kernel.expect("a share").value;
        assert!((saved - 28.0 / 128.0).abs() < 1e-12);
    }

    #[test]
    fn stays_within_what_the_kernel_allows() {
        let mut kernel = kernel_of(1000, 100);
        kernel.attributes.as_mut().expect("known").max_threads_per_block = 100;
        assert!(assert_finds(&RULE, kernel).change.starts_with("use 96 instead"));
    }

    /// A compiler chose it: no launch has another.
    #[test]
    fn a_block_that_the_code_requires_is_no_fault() {
        assert_clear(&RULE, Kernel { requires_block: true, ..kernel_of(1000, 100) });
    }

    #[test]
    fn is_clear_on_multiples() {
        for threads in [32, 64, 96, 1024] {
            assert_clear(&RULE, kernel_of(1000, threads));
        }
    }

    #[test]
    fn fires_on_both_sides_of_a_multiple() {
        for threads in [1, 31, 33, 127, 129, 1023] {
            assert_finds(&RULE, kernel_of(1000, threads));
        }
    }

    #[test]
    fn on_the_cpu_device_the_kernel_with_most_work_comes_first() {
        let of = |requests: u64, ns: f64| {
            let Kernel { launch, geometry, .. } = kernel_of(1000, 100);
            let counted = counted(Space::Global, Direction::Load, requests, 4 * requests, 0);
            timed(Kernel { launch, geometry, ..counted }, ns)
        };
        let profile = profile_of([of(100, 9e6), of(1000, 1e6)]);
        assert_eq!(assert_finds_in(&RULE, profile.clone()).kernels[0].kernel, 0);
        assert_eq!(assert_finds_in(&RULE, on_cpu_device(profile)).kernels[0].kernel, 1);
    }
}
