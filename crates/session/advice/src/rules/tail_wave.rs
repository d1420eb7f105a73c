//! Few full waves, and a last one that is nearly empty.

use super::in_blocks_of;
use cuda_launch::LaunchConfig;
use occupancy::{Waves, what_if};

use super::{Fault, Needs, Outcome, Rule, Subject, UNTIMED, confidence, judge_kernels, percent, up_to};
use crate::finding::{Evidence, Level, Scope, Severity, Unit};
use apex_profile::{Figure, Geometry, Kernel, Profile};

/// Minimum share of the kernel in the last wave: 1 / (full waves + 1).
const SHARE: f64 = 0.2;
/// Minimum tail effect: a last wave that is nearly full costs little.
const LEAST: f64 = 0.1;
/// Time per block over that of the same function's best configuration, from which on the tail
/// shows.
const SHOWS: f64 = 1.05;

pub(super) const RULE: Rule = Rule {
    id: "APEX-T04",
    slug: "tail-wave",
    title: "Tail effect: the last wave is partly empty",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "At least one full wave, a partial last one, 1 / (full waves + 1) >= 20%, and a tail effect of at least 10%. \
              Where the same function was timed with a shorter tail, its time per block must be at least 5% better there.",
    source: "Nsight Compute, launch statistics: tail effect. It also asks that achieved occupancy be below 80% of the \
             theoretical one, which takes hardware counters; measured time per block stands in for it. The 10% are \
             APEX's own: a last wave that is nearly full costs little.",
    why: "While the last blocks run, most SMs are idle: a few blocks beyond a full wave take as long as a \
        whole wave.",
    change: "Choose a block size that fills whole waves, or divide the work into more, shorter blocks, so \
        that the last wave matters less.",
    saving: "1 - waves / ceil(waves): the share of block slots that stay empty.",
    verify: "the tail effect and the kernel's duration decrease",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    if profile.totals.gpu_time_ns.is_none() {
        return Outcome::Unjudged(UNTIMED.to_owned());
    }
    judge_kernels(
        profile,
        confidence(Level::Medium, "exact if all blocks take equally long; uneven blocks fill the tail"),
        fault,
        |who| format!("{who}: the last of few waves is partly empty"),
    )
}

fn fault(Subject { kernel, geometry, profile, .. }: Subject<'_>) -> Option<Fault> {
    let waves = &geometry.waves;
    let effect = waves.tail_effect();
    // Shares such as 1/5 are not exact.
    let (may_cost, costs) = (1.0 / (waves.full + 1) as f64 + 1e-12, effect + 1e-12);
    if waves.full == 0 || waves.tail_blocks == 0 || may_cost < SHARE || costs < LEAST {
        return None;
    }
    let mine = time_per_block(kernel)?;
    let best = best_sibling(profile, kernel, effect);
    if best.is_some_and(|best| mine < best * SHOWS) {
        return None;
    }
    let mut evidence = vec![
        Evidence::new("waves", Figure::computed(waves.waves), Unit::Count),
        Evidence::new("blocks in the last wave", Figure::computed(waves.tail_blocks as f64), Unit::Count)
            .increase_towards(waves.capacity as f64),
        Evidence::new("tail effect", Figure::computed(effect), Unit::Share).decrease_towards(0.0),
    ];
    if let Some(best) = best {
        evidence.push(
            Evidence::new(
                "time per block over that of its best configuration",
                Figure::measured(mine / best),
                Unit::Count,
            )
            .decrease_towards(1.0),
        );
    }
    let better = other_block_size(kernel, profile, effect / 2.0);
    Some(Fault {
        evidence,
        change: change(kernel, geometry, better),
        saves: Ok(up_to(effect)),
        threads: better.map(|(threads, ..)| threads),
    })
}

/// Mean GPU time over blocks.
fn time_per_block(kernel: &Kernel) -> Option<f64> {
    kernel.gpu.as_ref().map(|gpu| gpu.each.mean_ns / kernel.blocks().max(1) as f64)
}

/// The best time per block of the same function with the same block and at least one full wave, but
/// half the tail.
fn best_sibling(profile: &Profile, kernel: &Kernel, effect: f64) -> Option<f64> {
    profile
        .kernels
        .iter()
        .filter(|other| other.symbol == kernel.symbol && other.device == kernel.device)
        .filter(|other| LaunchConfig { grid: kernel.launch.grid, ..other.launch } == kernel.launch)
        .filter(|other| {
            other.geometry.is_some_and(|g| g.waves.full > 0 && g.waves.tail_effect() < effect / 2.0)
        })
        .filter_map(time_per_block)
        .filter(|&time| time > 0.0)
        .min_by(f64::total_cmp)
}

/// The nearest change that halves the tail: another block size for the same threads, or less work
/// in each block.
fn change(kernel: &Kernel, geometry: &Geometry, better: Option<(u32, u64, f64)>) -> String {
    let effect = geometry.waves.tail_effect();
    if let Some((threads, blocks, then)) = better {
        return format!(
            "use {threads} threads in {blocks} blocks instead of {} in {}: the tail effect falls from {} to {}",
            kernel.block_threads(),
            kernel.blocks(),
            percent(effect),
            percent(then)
        );
    }
    let finer = |parts: u64| (geometry.waves.waves * parts as f64, parts);
    let tail = |waves: f64| 1.0 - waves / waves.ceil();
    let (waves, parts) =
        (2..=8).map(finer).find(|(waves, _)| tail(*waves) <= effect / 2.0).unwrap_or(finer(8));
    format!(
        "use {parts} times as many blocks with 1/{parts} of the work each: this makes {waves:.2} waves, and \
            the tail effect falls from {} to {}",
        percent(effect),
        percent(tail(waves))
    )
}

/// `(threads, blocks, tail effect)` of the block size nearest to the present one that has at most
/// so much tail and keeps theoretical occupancy.
fn other_block_size(kernel: &Kernel, profile: &Profile, most: f64) -> Option<(u32, u64, f64)> {
    let limits = profile.devices.get(kernel.device?)?.limits()?;
    let attributes = kernel.attributes?;
    let (size_now, least) = (kernel.block_threads(), kernel.geometry?.occupancy.warps_per_sm);
    what_if::block_sizes(&limits, &attributes, kernel.launch.dynamic_shared_bytes)
        .filter(|(size, occupancy)| *size >= 64 && occupancy.warps_per_sm >= least)
        .filter_map(|(size, occupancy)| {
            let blocks = in_blocks_of(kernel, size)?.blocks();
            let waves = Waves::of_grid(blocks, occupancy.blocks_per_sm, limits.attributes.multiprocessors);
            Some((size, blocks, waves.tail_effect()))
        })
        .filter(|(_, _, effect)| *effect <= most)
        .min_by_key(|(size, ..)| size.abs_diff(size_now))
}

#[cfg(test)]
mod tests {
    use super::super::Outcome;
    use super::super::fixture::{
        SMS, assert_clear, assert_finds, assert_unjudged, judged, kernel_of, profile_of, timed,
        with_registers,
    };
    use super::RULE;

    /// One block of this kernel fills an SM: a wave is 132 blocks.
    fn waves(blocks: u32) -> apex_profile::Kernel {
        timed(with_registers(blocks, 1024, 64), 100_000.0)
    }

    #[test]
    fn fires_on_one_block_above_a_wave() {
        let finding = assert_finds(&RULE, waves(SMS + 1));
        let saved = finding.kernels[0].saving.of_kernel.expect("a share").value;
        assert!((saved - (1.0 - 133.0 / 264.0)).abs() < 1e-12);
        assert_eq!(
            finding.change,
            "use 3 times as many blocks with 1/3 of the work each: this makes 3.02 waves, and the tail effect falls \
             from 50% to 24%"
        );
    }

    #[test]
    fn suggests_the_nearest_block_size_that_halves_the_tail() {
        // Blocks of 100 threads leave lanes empty, so that fewer threads are resident than with
        // 128.
        let finding = assert_finds(&RULE, timed(kernel_of(5_000, 100), 50_000.0));
        assert!(
            finding.change.starts_with("use 128 threads in 3907 blocks instead of 100 in 5000"),
            "{}",
            finding.change
        );
    }

    #[test]
    fn the_boundaries_are_whole_waves_and_four_of_them() {
        assert_clear(&RULE, waves(SMS));
        assert_clear(&RULE, waves(SMS - 1));
        assert_finds(&RULE, waves(4 * SMS + 1));
        assert_clear(&RULE, waves(5 * SMS + 1));
        // A last wave that is half full: 4.5 of 5 waves are used.
        assert_finds(&RULE, waves(4 * SMS + SMS / 2));
        assert_clear(&RULE, waves(4 * SMS + SMS / 2 + 1));
    }

    #[test]
    fn is_silent_where_a_shorter_tail_is_no_faster() {
        let even = timed(with_registers(2 * SMS, 1024, 64), 200_000.0);
        let per_block = 200_000.0 / f64::from(2 * SMS);
        let slow = timed(with_registers(SMS + 1, 1024, 64), per_block * 133.0 * 1.9);
        let fast = timed(with_registers(SMS + 1, 1024, 64), per_block * 133.0 * 1.02);
        assert!(matches!(judged(&RULE, &profile_of([even.clone(), slow])), Outcome::Found(_)));
        assert!(matches!(judged(&RULE, &profile_of([even, fast])), Outcome::Clear));
    }

    #[test]
    fn says_so_where_nothing_was_timed() {
        assert_unjudged(&RULE, profile_of([kernel_of(SMS + 1, 1024)]));
    }
}
