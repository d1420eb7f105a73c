//! Copies within the device that take a notable part of the time.

use super::{
    CPU_TIMES, Draft, NOT_MODELLED, Needs, Outcome, Rule, SECTOR, account, confidence, copying, counted,
    framework, from_place, job_saving, percent, sizes,
};
use crate::finding::{Evidence, Level, Saving, Scope, Severity, Unit};
use apex_profile::names::Owner;
use apex_profile::{Copies, CopyDirection, Figure, Kernel, Profile, SaturatingSum as _, total};
use std::collections::BTreeMap;

/// Minimum share of the time.
const COPYING: f64 = 0.1;
/// Minimum share of the bytes that copies and kernels access, where the CPU device counted.
const ACCESSED: f64 = 0.05;

pub(super) const RULE: Rule = Rule {
    id: "APEX-L81",
    slug: "device-copies",
    title: "Copies within the device",
    severity: Severity::Medium,
    scope: Scope::Host,
    needs: Needs::Records,
    parent: None,
    idle: &[],
    detects: "During at least 10% of the time the device copies from its own memory to its own memory, and no \
        kernel runs. On the CPU device: these copies read and write at least 5% of the bytes that copies \
        and kernels access in global memory. A process that uses several devices is not judged, because \
        copies may be between them.",
    source: "APEX; the time of a copy follows from its bytes and the bandwidth of the device's memory: an H200 copies at 0.39 of it. XLA \
        copies less in a loop that is unrolled twice (openxla/xla#5473), and more with lax.cond (jax-ml/jax#38145).",
    why: "A copy reads and writes each byte and computes nothing. The kernels wait for it.",
    change: "Exchange the two pointers instead of copying (double buffering: a kernel reads from one array \
        and writes to the other), or let the kernel write to where the data is needed.",
    saving: "The time of the copies, between nothing (all of them are needed) and all of it: the estimate is \
        nine tenths of it, and half of it where XLA, PyTorch or CuPy copies.",
    verify: "copies within the device decrease, and the run time decreases",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let within: Vec<&Copies> = profile.copies.iter().filter(|copy| is_within(copy)).collect();
    let moved = within.iter().map(|copy| copy.bytes).saturating_sum();
    if moved == 0 {
        return Outcome::Clear;
    }
    if use_several_devices(profile) {
        return Outcome::Unjudged("copies may be between the devices that a process uses".to_owned());
    }
    let count = within.iter().map(|copy| copy.count).saturating_sum();
    if profile.on_cpu_device() {
        return judge_bytes(profile, count, moved);
    }
    if profile.activities.is_empty() {
        return Outcome::Clear;
    }
    if profile.activities.iter().all(|activity| activity.idle_share.is_none()) {
        return Outcome::Unjudged(NOT_MODELLED.to_owned());
    }
    let span = profile.totals.span_ns.max(1.0);
    let copying = copying(profile, is_within).at_most((span - kernels_at_least(profile)).max(0.0));
    if copying.value < COPYING * span {
        return Outcome::Clear;
    }
    let by = framework(profile);
    let saved = avoidable(by) * copying.value;
    Outcome::found(Draft {
        summary: format!(
            "{}{}{}: for {} of the time the device copies within its memory and no kernel runs",
            counted(count, "copy", "copies"),
            sizes(within.iter().copied()),
            from_place(profile, within.iter().map(|copy| &copy.stacks)),
            percent(copying.value / span)
        ),
        evidence: vec![
            Evidence::new(
                "share of time with copies within the device only",
                copying.scaled(1.0 / span),
                Unit::Share,
            )
            .decrease_towards(0.0),
            copied(moved),
        ],
        kernels: Vec::new(),
        change: Some(change(by).to_owned()),
        saving: Saving {
            beyond: Some(Figure::predicted(saved, (0.0, copying.bounds().1))),
            ..job_saving(profile, Figure::predicted(0.0, (0.0, 0.0)))
        },
        confidence: confidence(
            Level::Medium,
            "the time of copies is estimated from their bytes; it is unknown which of them are needed",
        ),
    })
}

/// Time that kernels take for sure. On one stream none runs beside another: it is measured.
fn kernels_at_least(profile: &Profile) -> f64 {
    let modelled = account(profile, |accounts| accounts.kernels);
    let measured = profile.totals.gpu_time_ns.map_or(0.0, |time| time.bounds().0);
    match profile.activities.iter().all(|activity| activity.streams <= 1) {
        true => modelled.bounds().0.max(measured.min(modelled.value)),
        false => modelled.bounds().0,
    }
}

/// On the CPU device, whose times say nothing: by the bytes that are read and written.
fn judge_bytes(profile: &Profile, count: u64, moved: u64) -> Outcome {
    let sectors = |kernel: &Kernel| {
        let counts = kernel.counts.as_ref()?;
        let each = counts.sums.global_sectors() as f64 / counts.launches.max(1) as f64;
        Some(each * kernel.launches.ran() as f64)
    };
    let by_kernels = SECTOR * total(profile.kernels.iter().filter_map(sectors));
    if by_kernels == 0.0 {
        return Outcome::Unjudged(CPU_TIMES.to_owned());
    }
    let by_copies = 2.0 * moved as f64;
    let share = by_copies / (by_copies + by_kernels);
    if share < ACCESSED {
        return Outcome::Clear;
    }
    Outcome::found(Draft {
        summary: format!(
            "{}{} within the device: {} of the bytes that copies and kernels access",
            counted(count, "copy", "copies"),
            sizes(profile.copies.iter().filter(|copy| is_within(copy))),
            percent(share)
        ),
        evidence: vec![
            Evidence::new("share of the accessed bytes", Figure::computed(share), Unit::Share)
                .decrease_towards(0.0),
            copied(moved),
        ],
        kernels: Vec::new(),
        change: Some(change(framework(profile)).to_owned()),
        saving: Saving::default(),
        confidence: confidence(
            Level::Medium,
            "on a GPU, caches serve a part of what kernels access; it is unknown which copies are needed",
        ),
    })
}

fn copied(moved: u64) -> Evidence {
    Evidence::new("bytes copied within the device", Figure::measured(moved as f64), Unit::Bytes)
        .decrease_towards(0.0)
}

fn is_within(copy: &Copies) -> bool {
    copy.direction == CopyDirection::DeviceToDevice
}

/// Whether a process uses more than one device.
fn use_several_devices(profile: &Profile) -> bool {
    let mut of = BTreeMap::new();
    let mut used =
        profile.activities.iter().filter_map(|activity| Some((activity.process, activity.device?)));
    used.any(|(process, device)| *of.entry(process).or_insert(device) != device)
}

/// Share of the copies' time that a change usually saves, where `framework` copies.
fn avoidable(framework: Option<Owner>) -> f64 {
    if change(framework) == RULE.change { 0.9 } else { 0.5 }
}

fn change(framework: Option<Owner>) -> &'static str {
    match framework {
        Some(Owner::Xla) => {
            "Let XLA write in place: unroll=2 in lax.scan, if its carry moves values from one place to \
                    another; donate_argnums in jax.jit for arguments that the result replaces; jnp.where instead \
                    of a lax.cond that returns a carried array unchanged"
        }
        Some(Owner::PyTorch | Owner::Inductor) => {
            "Avoid .clone(), copy_() and assignments of whole tensors (x[…] = y) in the loop: exchange \
                    two tensors instead of copying one into the other, replace the oldest entry of a window \
                    instead of moving all of them, and let operators write to preallocated tensors (out=)"
        }
        Some(Owner::CuPy) => {
            "Avoid .copy() and assignments of whole arrays (x[…] = y) in the loop: exchange two arrays \
                    instead of copying one into the other, and let operations write to preallocated arrays (out=)"
        }
        _ => RULE.change,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{
        activity, assert_clear_in, assert_finds_in, assert_unjudged, copies, counted, launched_by,
        on_cpu_device, profile_of, profile_with,
    };
    use super::RULE;
    use apex_counts::{Direction, Space};
    use apex_profile::names::Owner;
    use apex_profile::{Accounts, Activity, Figure, Profile};
    use apex_trace::layout::MemoryKind::{Device, Pinned};

    /// Copies within the device take this share of the time; kernels the rest.
    fn copying(share: f64) -> Profile {
        let base = activity(1e9, 0.0);
        let accounts = Accounts {
            copies: Figure::predicted(share * 1e9, (0.5 * share * 1e9, 1e9)),
            kernels: Figure::predicted((1.0 - share) * 1e9, ((0.9 - share) * 1e9, 1e9)),
            ..base.accounts.clone()
        };
        let within = vec![copies(Device, Device, true, 1000, 16 << 20)];
        Profile { copies: within, ..profile_with([Activity { accounts, ..base }]) }
    }

    #[test]
    fn the_boundary_is_a_tenth_of_the_time() {
        let finding = assert_finds_in(&RULE, copying(0.4));
        let saving = finding.saving.of_job.expect("a share");
        assert!((saving.value - 0.36).abs() < 1e-9, "{saving:?}");
        // No more than the kernels leave: at least 0.5 of the time by the model, 0.6 measured.
        let most = |saving: Figure| (saving.bounds().1 * 1e9).round() / 1e9;
        assert_eq!((saving.bounds().0, most(saving)), (0.0, 0.5));
        let mut measured = copying(0.4);
        measured.totals.gpu_time_ns = Some(Figure::measured(0.6e9));
        let saving = |profile| assert_finds_in(&RULE, profile).saving.of_job.expect("a share");
        assert_eq!(most(saving(measured.clone())), 0.4);
        measured.activities[0].streams = 2;
        assert_eq!(most(saving(measured)), 0.5);
        assert!(finding.summary.starts_with("1,000 copies of 16.0 MiB: for 40%"), "{}", finding.summary);
        assert_finds_in(&RULE, copying(0.1));
        assert_clear_in(&RULE, copying(0.099));
    }

    #[test]
    fn the_time_of_copies_is_divided_by_what_they_take() {
        // Copies from pinned memory take more than a hundred times as long here.
        let mut most_from_the_host = copying(0.4);
        most_from_the_host.copies.push(copies(Device, Pinned, true, 1000, 160 << 20));
        assert_clear_in(&RULE, most_from_the_host);
    }

    #[test]
    fn names_what_the_program_can_change() {
        let change = |owner| assert_finds_in(&RULE, launched_by(owner, copying(0.4))).change;
        assert!(change(Owner::Own).starts_with("Exchange the two pointers"));
        assert!(change(Owner::Xla).contains("unroll=2"));
        assert!(change(Owner::PyTorch).contains(".clone()"));
        assert!(change(Owner::CuPy).contains(".copy()"));
    }

    #[test]
    fn copies_between_devices_are_not_judged() {
        let mut two = copying(0.4);
        let other = Activity { device: Some(1), ..two.activities[0].clone() };
        two.activities.push(other);
        assert_unjudged(&RULE, two);
    }

    #[test]
    fn on_the_cpu_device_bytes_decide() {
        // A thousand launches of 400 sectors, 12.8 MB: copies read and write a nineteenth of that.
        let of = |each: u64| {
            let profile = profile_of([counted(Space::Global, Direction::Load, 100, 400, 0)]);
            on_cpu_device(Profile { copies: vec![copies(Device, Device, true, 100, each)], ..profile })
        };
        let finding = assert_finds_in(&RULE, of(3_369));
        assert!(
            finding.saving.of_job.is_none() && finding.summary.contains("5% of the bytes"),
            "{finding:?}"
        );
        assert_clear_in(&RULE, of(3_368));
    }
}
