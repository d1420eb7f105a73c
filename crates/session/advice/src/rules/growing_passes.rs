//! Passes that each compute what the one before did, and a little more.
//!
//! A language model that keeps no keys and values computes all words before each new one again: the
//! sizes of its launches grow by the same few blocks from pass to pass. Launches of a size are
//! counted together, so that the passes of all texts show as an arithmetic progression of sizes,
//! each launched equally often.

use apex_ordered::Order;
use std::collections::BTreeMap;

use super::costly_line::work_by_place;
use super::{Draft, Fault, Needs, Outcome, Rule, UNTIMED, confidence, kernel_finding, on_the_clock, percent};
use crate::finding::{Evidence, Level, Saving, Scope, Severity, Unit};
use apex_profile::names::Operation;
use apex_profile::{Figure, Kernel, Profile, total};

/// Minimum number of sizes of a kernel.
const SIZES: usize = 4;
/// Largest step from one size to the next, as a part of the smallest.
const STEP: f64 = 0.1;
/// Largest difference between the launches of sizes, as a part of the most.
const UNEQUAL: f64 = 0.1;
/// Minimum number of kernels that grow so.
const KERNELS: usize = 3;
/// Minimum share of these kernels in the GPU time.
const LEAST: f64 = 0.1;

pub(super) const RULE: Rule = Rule {
    id: "APEX-T135",
    slug: "growing-passes",
    title: "Each pass computes all of the one before again",
    severity: Severity::High,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "At least three elementwise or normalising kernels with 10% of the GPU time are launched in at least four sizes each, \
        equally often, and each size has the same number of blocks more than the one before, at most 10% of the smallest.",
    source: "APEX; the thresholds are APEX's own.",
    why: "A little is appended, and everything is computed for it once more, so that n passes cost n times the first.",
    change: "Keep what a pass computed (a language model's keys and values: a cache), and compute for the new part alone.",
    saving: "Of the time of the passes, all but the first and a little for each new part; less if the launches of short passes take \
        longer than their kernels.",
    verify: "the kernels' sizes no longer grow, and the run time decreases",
    judge,
};

/// Sizes of one kernel that grow from pass to pass.
struct Growing {
    /// Rows of the profile, the smallest first.
    rows: Vec<usize>,
    /// Blocks from one size to the next.
    step: u64,
}

fn judge(profile: &Profile) -> Outcome {
    let Some(all) = profile.totals.gpu_time_ns.map(|time| time.value).filter(|&time| time > 0.0) else {
        return Outcome::Unjudged(UNTIMED.to_owned());
    };
    let found = growing(profile);
    let time = |growing: &Growing| time_of(profile, &growing.rows);
    let share = total(found.iter().map(time)) / all;
    let Some(largest) = found.iter().max_by(|a, b| time(a).total_cmp(&time(b))) else {
        return Outcome::Clear;
    };
    if found.len() < KERNELS || share < LEAST {
        return Outcome::Clear;
    }
    let passes = largest.rows.len();
    let first = &profile.kernels[largest.rows[0]];
    let needless = 1.0 - 1.0 / passes as f64;
    let finding = |&(row, part): &(usize, f64)| {
        let saves = Figure::predicted(0.6 * needless * part, (0.2 * needless * part, needless * part));
        let change = "compute the new part alone".to_owned();
        kernel_finding(profile, row, Fault { evidence: Vec::new(), change, saves: Ok(saves), threads: None })
    };
    Outcome::found(Draft {
        summary: format!(
            "`{}` and {} other kernels run in {passes} sizes, equally often, each {} blocks larger than the one before ({} of the \
             smallest): each pass computes all of the one before, and a little more",
            first.short_name,
            found.len() - 1,
            largest.step,
            percent(largest.step as f64 / first.launch.blocks().max(1) as f64)
        ),
        evidence: vec![
            Evidence::new("passes", Figure::measured(passes as f64), Unit::Count),
            Evidence::new("share of GPU time of kernels that grow", Figure::measured(share), Unit::Share),
        ],
        kernels: claimed(profile, &found).iter().map(finding).collect(),
        change: None,
        saving: Saving::default(),
        confidence: confidence(
            Level::Medium,
            "sizes are counted; that the larger one contains the smaller one's work is inferred",
        ),
    })
}

/// The kernels of which each size is launched equally often and one step larger than the last.
fn growing(profile: &Profile) -> Vec<Growing> {
    let mut sizes: BTreeMap<(&str, [u32; 3]), Vec<usize>> = BTreeMap::new();
    for (row, kernel) in profile.kernels.iter().enumerate().filter(|(_, kernel)| is_of_elements(kernel)) {
        let block = <[u32; 3]>::from(kernel.launch.block);
        sizes.entry((&kernel.symbol, block)).or_default().push(row);
    }
    sizes.into_values().filter_map(|rows| progression(profile, rows)).collect()
}

/// Whether a kernel's size follows from its elements, and it ran.
fn is_of_elements(kernel: &Kernel) -> bool {
    let of_elements =
        [Operation::Elementwise, Operation::Normalization, Operation::Softmax, Operation::Fused];
    kernel.launches.ran() > 0 && kernel.gpu.is_some() && of_elements.contains(&kernel.traits.operation)
}

/// The longest end of the sizes that grows by one step.
fn progression(profile: &Profile, mut rows: Vec<usize>) -> Option<Growing> {
    let blocks = |row: usize| profile.kernels[row].launch.blocks();
    rows.order_by_key(|&row| blocks(row));
    rows.dedup_by_key(|row| blocks(*row));
    let step = rows.len().checked_sub(2).map(|before| blocks(rows[before + 1]) - blocks(rows[before]))?;
    let grows = |pair: &[usize]| blocks(pair[1]) - blocks(pair[0]) == step;
    let length = rows.windows(2).rev().take_while(|pair| grows(pair)).count() + 1;
    let rows = rows.split_off(rows.len() - length);
    let launches = || rows.iter().map(|&row| profile.kernels[row].launches.ran() as f64);
    let (least, most) = (launches().fold(f64::MAX, f64::min), launches().fold(0.0, f64::max));
    let is_little = step as f64 <= STEP * blocks(rows[0]) as f64;
    let are_equal = least >= (1.0 - UNEQUAL) * most;
    (rows.len() >= SIZES && is_little && are_equal).then_some(Growing { rows, step })
}

/// All kernels of the places that launch growing ones, with the share of their time; without known
/// places these alone.
fn claimed(profile: &Profile, found: &[Growing]) -> Vec<(usize, f64)> {
    let is_growing = |row: usize| found.iter().any(|growing| growing.rows.contains(&row));
    let mut shares: BTreeMap<usize, f64> = BTreeMap::new();
    for work in work_by_place(profile) {
        let growing = total(work.kernels.iter().filter(|(row, _)| is_growing(*row)).map(|(_, time)| *time));
        if growing * on_the_clock(profile) < LEAST * work.time_ns {
            continue;
        }
        for (row, time) in work.kernels {
            let of_kernel = profile.kernels[row].gpu_total_ns().unwrap_or(time).max(1.0);
            *shares.entry(row).or_default() += time / of_kernel;
        }
    }
    for row in found.iter().flat_map(|growing| &growing.rows) {
        shares.entry(*row).or_insert(1.0);
    }
    shares.into_iter().map(|(row, share)| (row, share.min(1.0))).collect()
}

fn time_of(profile: &Profile, rows: &[usize]) -> f64 {
    total(rows.iter().filter_map(|&row| profile.kernels[row].gpu_total_ns()))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{assert_clear_in, assert_finds_in, named, profile_of, timed};
    use super::RULE;
    use crate::{Options, advise};
    use apex_profile::{Kernel, Profile};

    const KERNELS: [&str; 3] = [
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::tanh_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}, std::array<char*, 2ul> >(int)",
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float, float const*, float const*, float const*, float*, float*, float*)",
    ];

    /// Each kernel in these sizes.
    fn in_sizes(sizes: [u32; 5]) -> Profile {
        let kernel = |at: usize| -> Kernel {
            let mut kernel = timed(named(KERNELS[at / 5]), 1e5);
            kernel.launch.grid = [sizes[at % 5], 1, 1].into();
            kernel
        };
        profile_of::<15>(std::array::from_fn(kernel))
    }

    #[test]
    fn fires_where_passes_grow_by_the_same_little() {
        let finding = assert_finds_in(&RULE, in_sizes([1000, 1008, 1016, 1024, 1032]));
        assert!(
            finding.summary.contains("in 5 sizes") && finding.summary.contains("8 blocks"),
            "{}",
            finding.summary
        );
        assert_eq!(finding.kernels.len(), 15);
        let saved = finding.kernels[0].saving.of_kernel.expect("a claim").value;
        assert!((0.4..0.6).contains(&saved), "{saved}");
    }

    #[test]
    fn it_goes_before_what_makes_the_same_kernels_faster() {
        // All blocks of a wave but one are idle in its last wave: another finding about a kernel.
        let mut profile = in_sizes([2113, 2121, 2129, 2137, 2145]);
        profile.kernels.iter_mut().for_each(|kernel| kernel.launch.block = [100, 1, 1].into());
        let advice = advise(&profile, &Options::default());
        let of_first = |rule: &str| {
            let finding = advice.findings.iter().find(|finding| finding.rule == rule)?;
            finding.kernels.iter().find(|found| found.kernel == 0)?.saving.time_ns
        };
        let all = profile.kernels[0].gpu_total_ns().expect("timed");
        let saved = of_first(RULE.id).expect("a saving").value / all;
        assert!((0.4..0.6).contains(&saved), "all of its claim: {saved}");
        assert_eq!(advice.findings[0].rule, RULE.id);
    }

    #[test]
    fn sizes_of_other_causes_are_no_passes() {
        // Lengths of texts, a pyramid of pictures, and steps that double the work.
        for sizes in [[1000, 1004, 1019, 1024, 1041], [64, 128, 256, 512, 1024], [8, 16, 24, 32, 40]] {
            assert_clear_in(&RULE, in_sizes(sizes));
        }
        let mut unequal = in_sizes([1000, 1008, 1016, 1024, 1032]);
        unequal.kernels.iter_mut().step_by(2).for_each(|kernel| kernel.launches.calls *= 3);
        assert_clear_in(&RULE, unequal);
    }
}
