//! A grid with fewer blocks than the device has multiprocessors.

use super::tiny_launches::is_tiny;
use super::{
    CPU_SAVING, Fault, Needs, Outcome, Rule, Subject, confidence, counted, judge_all_kernels, legacy_stream,
    percent,
};
use crate::finding::{BLOCKS, Evidence, Level, Scope, Severity, Unit};
use apex_profile::names::{Operation, OwnerKind};
use apex_profile::{Figure, Kernel, Profile};

/// Minimum duration of a kernel; the time of shorter ones is mostly launch overhead.
const SHORT_NS: f64 = 10e3;
/// Minimum share of the GPU time for a library's kernel.
const MOST: f64 = 0.3;

pub(super) const RULE: Rule = Rule {
    id: "APEX-L02",
    slug: "small-grid",
    title: "Fewer blocks than SMs",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Records,
    parent: None,
    idle: &[],
    detects: "Blocks of the grid < multiprocessors (SMs) of the device, in a kernel that takes at least 10 µs (or was not timed). Of a \
              library's kernel: blocks < half of the SMs, and at least 30% of the GPU time. Not where APEX-L42 or APEX-L22 names the \
              cause. On the CPU device: fewer than 8 blocks, which leave SMs empty on nearly every GPU.",
    source: "Nsight Compute, launch statistics: grid size below the number of SMs.",
    why: "A block runs on one SM: SMs without a block are idle during the whole kernel, unless another \
        kernel runs at the same time.",
    change: "Divide the work into at least as many blocks as there are SMs: use smaller blocks or less work \
        per thread; otherwise launch independent kernels on separate streams, so that they overlap.",
    saving: "(SMs - blocks) / SMs of the kernel's time; at most what filling the SMs saves, 1 - blocks / resident blocks of the device; for a grid that covers more than half of the SMs, at most what two blocks per SM save.",
    verify: "the grid covers all SMs, and the kernel's duration decreases",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    if legacy_stream::serialises(profile) {
        return Outcome::Clear;
    }
    judge_all_kernels(
        profile,
        confidence(
            Level::Low,
            "effective only if the work can be divided further and no other kernel uses the idle SMs",
        ),
        fault,
        |who| format!("{who}: some SMs get no blocks"),
    )
}

fn fault(Subject { kernel, geometry, sms, profile }: Subject<'_>) -> Option<Fault> {
    let blocks = kernel.blocks();
    let short = !profile.on_cpu_device() && kernel.gpu.is_some_and(|gpu| gpu.each.mean_ns < SHORT_NS);
    if sms == 0 || blocks >= u64::from(sms) || short || is_tiny(kernel, profile) {
        return None;
    }
    let own = kernel.traits.owner.kind() == OwnerKind::Own;
    if !own && !matters_of_library(profile, kernel, sms) {
        return None;
    }
    if profile.on_cpu_device() {
        return Some(Fault {
            evidence: vec![
                Evidence::new(BLOCKS, Figure::measured(blocks as f64), Unit::Count)
                    .increase_towards(sms.into()),
            ],
            change: format!(
                "divide the work into at least as many blocks as the GPU has SMs (an H200 has 132) instead \
                    of {blocks}: give each thread less work, or use smaller blocks"
            ),
            saves: Err(CPU_SAVING),
            threads: None,
        });
    }
    let covered = blocks as f64 / f64::from(sms);
    // Where most SMs have work, a second block on each hides latencies; more blocks rarely help.
    let full = geometry.waves.capacity.max(1);
    let room = if 2.0 * covered > 1.0 { full.min(2 * u64::from(sms)) } else { full };
    let filled = blocks as f64 / room as f64;
    Some(Fault {
        evidence: vec![
            Evidence::new(BLOCKS, Figure::measured(blocks as f64), Unit::Count).increase_towards(sms.into()),
            Evidence::new("SMs with a block", Figure::computed(geometry.waves.sm_coverage), Unit::Share)
                .increase_towards(1.0),
        ],
        change: match own {
            true => change(blocks, kernel.block_threads(), sms),
            false => format!(
                "enlarge the batch, call another routine of the library, or run independent operations on separate \
                    streams: {} of the SMs stay without work, because the kernel has {}",
                percent(1.0 - covered),
                counted(blocks, "block", "blocks")
            ),
        },
        // Another routine of a library may do without the kernel.
        saves: Ok(Figure::predicted(1.0 - covered, (0.0, if own { 1.0 - filled } else { 1.0 }))),
        threads: smaller_blocks(blocks, kernel.block_threads(), sms).filter(|_| own),
    })
}

/// Whether a library's kernel, whose grid follows from the operands, leaves most of the device
/// empty for much of the time. Collectives use few blocks on purpose.
fn matters_of_library(profile: &Profile, kernel: &Kernel, sms: u32) -> bool {
    let all = profile.totals.gpu_time_ns.map_or(0.0, |time| time.value);
    kernel.traits.operation != Operation::Collective
        && 2 * kernel.blocks() < u64::from(sms)
        && kernel.gpu_total_ns().is_some_and(|time| time >= MOST * all)
}

/// A block size with which the same threads make a block for every SM, where there is one.
fn smaller_blocks(blocks: u64, threads: u32, sms: u32) -> Option<u32> {
    let warps_per_sm = blocks.saturating_mul(threads.div_ceil(32).into()) / u64::from(sms);
    u32::try_from(warps_per_sm.saturating_mul(32)).ok().filter(|smaller| (32..threads).contains(smaller))
}

fn change(blocks: u64, threads: u32, sms: u32) -> String {
    if let Some(smaller) = smaller_blocks(blocks, threads, sms) {
        let more = blocks.saturating_mul(threads.into()).div_ceil(smaller.into());
        format!(
            "use {smaller} instead of {threads} threads per block: the same threads then form {more} blocks"
        )
    } else {
        format!(
            "give each thread less work, so that there are at least {sms} blocks instead of {blocks}; or run \
                it on a separate stream together with other kernels"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{
        SMS, assert_clear, assert_finds, assert_finds_in, kernel_of, named, on_cpu_device, profile_of, timed,
    };
    use super::super::{LEAST_SMS, Outcome};
    use super::RULE;
    use apex_profile::Kernel;

    #[test]
    fn fires_below_the_number_of_sms() {
        let finding = assert_finds(&RULE, kernel_of(33, 1024));
        assert_eq!(
            finding.change,
            "use 256 instead of 1024 threads per block: the same threads then form 132 blocks"
        );
        assert_eq!(finding.kernels[0].saving.of_kernel.expect("a share").value, 0.75);
    }

    #[test]
    fn says_what_to_do_where_smaller_blocks_are_not_enough() {
        assert!(assert_finds(&RULE, kernel_of(17, 32)).change.starts_with("give each thread less work"));
    }

    #[test]
    fn a_library_s_launches_are_not_the_users_to_change() {
        let launch = kernel_of(33, 1024).launch;
        for name in [
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(int)",
            "ampere_sgemm_128x64_tn",
            "triton_poi_fused_add_0",
        ] {
            assert_clear(&RULE, Kernel { launch, ..named(name) });
        }
    }

    #[test]
    fn a_solvers_kernel_gets_no_advice_about_its_blocks() {
        let name = "_Z19gesvdbj_batch_32x16IffEvlPKiS1_S1_iPKT_iT0_PS2_S6_PiS5_iS5_";
        let launch = kernel_of(12, 512).launch;
        let finding = assert_finds(&RULE, timed(Kernel { launch, ..named(name) }, 3e4));
        assert!(finding.change.starts_with("enlarge the batch"), "{}", finding.change);
        assert!(finding.kernels[0].to.is_none());
    }

    #[test]
    fn on_the_cpu_device_a_grid_is_too_small_where_it_is_for_every_gpu() {
        let of = |blocks| on_cpu_device(profile_of([timed(kernel_of(blocks, 1024), 5e3)]));
        let finding = assert_finds_in(&RULE, of(LEAST_SMS - 1));
        assert!(finding.change.contains("as many blocks as the GPU has SMs"), "{}", finding.change);
        assert!(finding.kernels[0].saving.of_kernel.is_none());
        // Two blocks take as long as eight that do four times the work.
        assert_eq!(assert_finds_in(&RULE, of(2)).counted_weight(&[0.25]), 1.0);
        // Whether more blocks fill the GPU depends on it.
        assert!(matches!(RULE.says(&of(LEAST_SMS)), Outcome::Unjudged(_)));
    }

    #[test]
    fn the_boundary_is_the_number_of_sms() {
        assert_finds(&RULE, kernel_of(SMS - 1, 128));
        assert_clear(&RULE, kernel_of(SMS, 128));
    }
}
