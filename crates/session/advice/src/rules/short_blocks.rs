//! Blocks that end as soon as they begin: the device starts them no faster than it does.

use super::{Fault, Needs, Outcome, Rule, Subject, UNTIMED, confidence, judge_kernels, time};
use crate::finding::{Evidence, Level, Scope, Severity, Unit};
use apex_profile::{Figure, Profile};

/// Blocks that a multiprocessor of an H200 starts in a nanosecond: 1,048,576 blocks of 32 and of
/// 128 threads take 633 µs and 639 µs there, on 132 multiprocessors.
const RATE: f64 = 0.0125;
/// Minimum share of that rate for a kernel to be limited by block launches.
const NEAR: f64 = 0.88;
/// Minimum waves to judge the rate.
const WAVES: f64 = 32.0;
/// Factor by which blocks can be enlarged, at least …
const LEAST: f64 = 2.0;
/// … usually …
const USUAL: f64 = 4.0;
/// … and at most.
const MOST: f64 = 128.0;

pub(super) const RULE: Rule = Rule {
    id: "APEX-T74",
    slug: "short-blocks",
    title: "Blocks too short to hide their launch overhead",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "A kernel of at least 32 waves that launches blocks at 88% or more of an H200's maximum rate \
        (12.5 per SM and microsecond).",
    source: "APEX, measured on an H200: 1,048,576 blocks take 633 µs whether they have 32 threads or 128.",
    why: "An SM launches a block every 80 ns: shorter blocks end before the next ones start.",
    change: "Give each block more work: more threads, or several elements per thread (a grid-stride loop; in \
        Triton a larger BLOCK).",
    saving: "Three quarters of the kernel's time with blocks four times as large; between half of it (twice \
        as large) and nearly all.",
    verify: "there are fewer blocks, and the kernel's duration decreases",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    if profile.totals.gpu_time_ns.is_none() && profile.totals.kernels_run() > 0 {
        return Outcome::Unjudged(UNTIMED.to_owned());
    }
    let sure = confidence(
        Level::Medium,
        "the rate is an H200's; the duration with larger blocks depends on the kernel",
    );
    judge_kernels(profile, sure, fault, |who| format!("{who}: blocks shorter than their launch interval"))
}

fn fault(subject: Subject<'_>) -> Option<Fault> {
    let Subject { kernel, geometry, sms, .. } = subject;
    let mean_ns = kernel.gpu.as_ref()?.each.mean_ns;
    let blocks = kernel.blocks() as f64;
    let rate = blocks / mean_ns.max(1.0) / f64::from(sms.max(1));
    if geometry.waves.waves < WAVES || rate < NEAR * RATE {
        return None;
    }
    let kept = |times: f64| 1.0 - 1.0 / times;
    Some(Fault {
        evidence: vec![
            Evidence::new("blocks", Figure::measured(blocks), Unit::Count).decrease_towards(blocks / USUAL),
            Evidence::new("time per block of an SM", Figure::measured(1.0 / rate), Unit::Nanoseconds)
                .compared_as(format!("near the interval at which an SM starts blocks, {}", time(1.0 / RATE))),
        ],
        change: format!(
            "give each of the {} blocks of {} threads at least four times as much work: several elements per \
                thread",
            kernel.blocks(),
            kernel.launch.block.count()
        ),
        saves: Ok(Figure::predicted(kept(USUAL), (kept(LEAST), kept(MOST)))),
        threads: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{
        assert_clear, assert_finds, assert_finds_in, assert_unjudged, kernel_of, named, profile_of, timed,
    };
    use super::RULE;
    use apex_profile::Kernel;

    #[test]
    fn fires_at_the_rate_at_which_blocks_start() {
        let finding = assert_finds(&RULE, timed(kernel_of(1 << 20, 128), 639e3));
        let saving = finding.saving.of_kernel.expect("timed");
        assert!((saving.value - 0.75).abs() < 1e-9, "{saving:?}");
        // Blocks of 256 threads that add one element each at the full rate of memory.
        assert_clear(&RULE, timed(kernel_of(1 << 20, 256), 800e3));
        assert_clear(&RULE, timed(kernel_of(1000, 128), 0.3e3));
    }

    #[test]
    fn a_remedy_for_several_kernels_says_so_in_short_too() {
        let kernel = |block| timed(kernel_of(1 << 20, block), 639e3);
        let several = assert_finds_in(&RULE, profile_of([kernel(128), kernel(64)]));
        assert!(several.remedy.ends_with(" elements per thread; likewise 1 other"), "{}", several.remedy);
        let one = assert_finds_in(&RULE, profile_of([kernel(128)]));
        assert!(one.remedy.ends_with(" elements per thread"), "{}", one.remedy);
    }

    #[test]
    fn how_frameworks_launch_is_their_own() {
        let add = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3>>(int)";
        let theirs = Kernel { launch: kernel_of(1 << 20, 128).launch, ..named(add) };
        assert_clear(&RULE, timed(theirs, 639e3));
        assert_unjudged(&RULE, profile_of([kernel_of(1 << 20, 128)]));
    }
}
