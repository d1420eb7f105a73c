//! Collectives of NCCL: where ranks wait for one another, where they are too small, where nothing
//! runs beside them.
//!
//! One kernel of NCCL serves every operation and size ("AllReduce", "f32" is all that its name
//! tells), and it runs from the moment its rank arrives until the last rank has: its time is
//! waiting and transfer together. The rank that arrives last does not wait, so the shortest time
//! over the ranks is the transfer.

use super::{
    Draft, Fault, Needs, Outcome, Rule, about_kernels, account, confidence, idle_around_launches,
    kernel_finding, on_the_clock, percent, share_of_launches, time,
};
use crate::finding::{Evidence, Level, Saving, Scope, Severity, Unit};
use apex_profile::names::Operation;
use apex_profile::{Account, Activity, Figure, Kernel, Profile, total};
use std::collections::BTreeMap;

/// Minimum share of the time of all ranks for a finding.
const MATTERS: f64 = 0.05;
/// Maximum mean time of a collective that consists of latency instead of transfer.
const SMALL_NS: f64 = 50e3;
/// Minimum launches of a small collective.
const MANY: u64 = 100;
/// Minimum ratio of elapsed time to GPU time without overlap.
const ALONE: f64 = 0.95;
/// Minimum samples of a collective to judge its spread …
const SAMPLES: u64 = 20;
/// … and minimum ratio of the longest tenth to the shortest.
const SPREAD: f64 = 3.0;

pub(super) const SLOW_RANK: Rule = Rule {
    id: "APEX-T71",
    slug: "slow-rank",
    title: "Ranks wait for a straggler",
    severity: Severity::High,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "An NCCL collective takes longer on one device than on another, in total by at least 5% of the \
        span of both. If only one rank was recorded: the longest tenth of its launches takes at least 3 \
        times as long as the shortest tenth, and the excess is 5% of the span.",
    source: "Holistic Trace Analysis compares ranks; NVIDIA, pitfalls of distributed profiling: rank 0 is not typical. The threshold \
             is APEX's own.",
    why: "A collective ends when the last rank has arrived: the additional time on the other ranks is \
        waiting time.",
    change: "Give all ranks equal work: balance batches by tokens or pixels instead of samples; look for \
        work that only the slow rank does (logging, evaluation, a slower loader).",
    saving: "The waiting time of all ranks, at most the account \"waiting for another rank\": of one slow rank among n, balancing saves \
             (n - 1) / n of it on each of the n. At least half of that, at most the collective's whole time.",
    verify: "the collective takes equally long on all devices, and the step's time decreases",
    judge: judge_slow_rank,
};

pub(super) const SMALL: Rule = Rule {
    id: "APEX-T72",
    slug: "small-collectives",
    title: "Small collectives",
    severity: Severity::High,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "At least 100 launches of NCCL collectives on a device, which take less than 50 µs on average \
        and at least 5% of the span together.",
    source: "APEX. A collective of a few kilobytes on NVLink has a latency of about 15 µs regardless of its size.",
    why: "Each collective has a latency and host overhead that do not depend on its size.",
    change: "Reduce many tensors at once: DistributedDataParallel with larger buckets (bucket_cap_mb), or \
             one flat buffer.",
    saving: "Nine tenths of the time of these kernels and of the idle time around their launches, between half and all of it.",
    verify: "collectives become fewer and longer, and the step's time decreases",
    judge: judge_small,
};

pub(super) const EXPOSED: Rule = Rule {
    id: "APEX-T73",
    slug: "exposed-collectives",
    title: "Collectives do not overlap with computation",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "Collectives of at least 50 µs take at least 5% of the span, and kernels do not overlap with \
        them on any device.",
    source: "Holistic Trace Analysis: overlap of communication and computation. The thresholds are APEX's own.",
    why: "A transfer occupies few SMs; the others could compute.",
    change: "Start each collective on a separate stream as soon as its data are ready, and wait for it only \
        before its result is used: DistributedDataParallel does so during the backward pass, async_op=True \
        elsewhere.",
    saving: "At most the time of the transfers; the estimate is half of it, because overlapping kernels \
        become slower.",
    verify: "kernels overlap, and the step's time decreases",
    judge: judge_exposed,
};

/// The same collective on all devices: its rows of the profile, and its time on each device,
/// nanoseconds.
#[derive(Default)]
struct Collective {
    rows: Vec<usize>,
    on_device: BTreeMap<usize, f64>,
    launches: u64,
}

impl Collective {
    fn least(&self) -> f64 {
        self.on_device.values().copied().fold(f64::INFINITY, f64::min)
    }

    /// The device on which it takes least: the others wait for it.
    fn slowest(&self) -> Option<usize> {
        let least = self.on_device.iter().min_by(|a, b| a.1.total_cmp(b.1));
        least.map(|(device, _)| *device)
    }

    fn mean_ns(&self) -> f64 {
        self.on_device.values().sum::<f64>() / self.launches.max(1) as f64
    }
}

/// Whether a kernel is a collective.
fn is_collective(kernel: &Kernel) -> bool {
    kernel.traits.operation == Operation::Collective
}

/// The collectives that were timed on at least two devices, by their kernel.
fn collectives(profile: &Profile) -> BTreeMap<&str, Collective> {
    let mut found: BTreeMap<&str, Collective> = BTreeMap::new();
    for (row, kernel) in profile.kernels.iter().enumerate().filter(|(_, kernel)| is_collective(kernel)) {
        let (Some(device), Some(gpu)) = (kernel.device, &kernel.gpu) else { continue };
        let collective = found.entry(&kernel.symbol).or_default();
        collective.rows.push(row);
        collective.launches = collective.launches.saturating_add(kernel.launches.ran());
        *collective.on_device.entry(device).or_default() += gpu.total_ns.value;
    }
    found.retain(|_, collective| collective.on_device.len() > 1);
    found
}

/// One finding about the rows for which `fault` says what to do.
fn judge(
    profile: &Profile,
    fault: impl Fn(&Collective, &Kernel) -> Option<Fault>,
    level: Level,
    because: &str,
    headline: impl Fn(&str) -> String,
) -> Outcome {
    let found = collectives(profile);
    let kernels: Vec<_> = found
        .values()
        .flat_map(|collective| collective.rows.iter().map(move |&row| (collective, row)))
        .filter_map(|(collective, row)| {
            Some(kernel_finding(profile, row, fault(collective, &profile.kernels[row])?))
        })
        .collect();
    if kernels.is_empty() {
        return Outcome::Clear;
    }
    let change = kernels[0].change.clone();
    let draft = about_kernels(profile, kernels, confidence(level, because), headline);
    Outcome::found(Draft { change: Some(change), ..draft })
}

fn judge_slow_rank(profile: &Profile) -> Outcome {
    let part = part_in_account(profile);
    let fault = |collective: &Collective, kernel: &Kernel| {
        let own = *collective.on_device.get(&kernel.device?)?;
        let waited = own - collective.least();
        let total: f64 = collective.on_device.values().map(|time| time - collective.least()).sum();
        if waited <= 0.0 || total < MATTERS * profile.totals.span_ns {
            return None;
        }
        let share = waited / own;
        Some(Fault {
            evidence: vec![
                Evidence::new("waiting in the collective", Figure::measured(waited), Unit::Nanoseconds)
                    .decrease_towards(0.0),
                Evidence::new("share of the collective's time", Figure::measured(share), Unit::Share)
                    .decrease_towards(0.0),
            ],
            change: wait_in_words(profile, kernel.device?, collective.slowest()?, share),
            saves: Ok(Figure::predicted(share * part, (share * part / 2.0, 1.0))),
            threads: None,
        })
    };
    if profile.kernels.iter().any(is_collective) && collectives(profile).is_empty() {
        return judge_spread(profile);
    }
    let because = "on the rank that arrives last, the collective consists of the transfer only; it is \
        unknown how evenly the work can be divided";
    judge(profile, fault, Level::High, because, |who| format!("{who}: ranks wait for a straggler"))
}

/// The part of the waiting time that is in the account of waiting, where kernels run beside some of
/// it: only this part can be saved. 1 where the time was not divided into accounts.
fn part_in_account(profile: &Profile) -> f64 {
    let in_account = account(profile, |accounts| accounts.waiting).value;
    let found = collectives(profile);
    let waits = found
        .values()
        .map(|collective| total(collective.on_device.values().map(|time| time - collective.least())));
    let on_the_clock = total(waits) * on_the_clock(profile);
    if in_account > 0.0 && on_the_clock > in_account { in_account / on_the_clock } else { 1.0 }
}

/// Says in words which rank waits for which, how long, and the slow rank's activity meanwhile.
fn wait_in_words(profile: &Profile, waiting: usize, slow: usize, share: f64) -> String {
    let (waits, works) = (profile.only_user(waiting), profile.only_user(slow));
    let name = |device: usize, user: Option<&Activity>| match user.map(|user| profile.user_in_words(user)) {
        Some(name) if !name.is_empty() => name,
        _ => profile.device_names().in_words(Some(device)),
    };
    let share_of = |user: &Activity, time: Figure| time.value / user.accounts.span_ns.max(1.0);
    let how_long = match waits.map(|user| share_of(user, user.accounts.waiting)) {
        Some(share) if share > 0.0 => format!("{} of its time", percent(share)),
        _ => format!("{} of the collective's time", percent(share)),
    };
    let instead = waits.zip(works).and_then(|(waits, works)| {
        let more = |account: Account| {
            let of = |user: &Activity| share_of(user, user.accounts.time(account));
            (account, of(works), of(waits))
        };
        let is_work = |account: &Account| {
            !matches!(account, Account::Collectives | Account::Waiting | Account::Unknown)
        };
        let all = Account::ALL.into_iter().filter(is_work).map(more);
        let (account, slow, other) = all.max_by(|a, b| (a.1 - a.2).total_cmp(&(b.1 - b.2)))?;
        let what = account.name();
        (slow - other >= MATTERS).then(|| {
            format!(
                ", which spends {} of its time in {what} (the waiting one {})",
                percent(slow),
                percent(other)
            )
        })
    });
    format!(
        "give the ranks equal work: {} waits {how_long} for {}{}",
        name(waiting, waits),
        name(slow, works),
        late_by_match(profile, slow).or(instead).unwrap_or_default()
    )
}

/// To how many collectives the rank of a device came last, and what it did meanwhile, where
/// collectives were matched one by one.
fn late_by_match(profile: &Profile, slow: usize) -> Option<String> {
    let by_rank = profile.by_rank()?;
    let late = by_rank.late.filter(|late| by_rank.ranks[late.row].device == Some(slow))?;
    Some(format!(", which comes last to {} of {} collectives: {late}", late.last, late.of))
}

/// One rank alone tells of a slow one by the spread of a collective's time: the tenth that takes
/// least found the others waiting already.
fn judge_spread(profile: &Profile) -> Outcome {
    let mut kernels = Vec::new();
    for (row, kernel) in profile.kernels.iter().enumerate().filter(|(_, kernel)| is_collective(kernel)) {
        let Some(gpu) = kernel.gpu.filter(|gpu| gpu.each.count >= SAMPLES) else { continue };
        let (least, mean) = (gpu.each.p10_ns, gpu.each.mean_ns);
        let share = (1.0 - least / mean).max(0.0);
        if gpu.each.p90_ns < SPREAD * least || share * gpu.total_ns.value < MATTERS * profile.totals.span_ns {
            continue;
        }
        let fault = Fault {
            evidence: vec![
                Evidence::new("shortest tenth", Figure::measured(least), Unit::Nanoseconds),
                Evidence::new("longest tenth", Figure::measured(gpu.each.p90_ns), Unit::Nanoseconds)
                    .decrease_towards(least),
            ],
            change: format!(
                "this rank waits {} of the collective's time, if the shortest tenth is the transfer: record all ranks, and \
                 give them equal work",
                percent(share)
            ),
            saves: Ok(Figure::predicted(share, (0.0, share))),
            threads: None,
        };
        kernels.push(kernel_finding(profile, row, fault));
    }
    if kernels.is_empty() {
        return Outcome::Clear;
    }
    let change = kernels[0].change.clone();
    let sure = confidence(Level::Low, "only one rank was recorded, and its collectives may differ in size");
    let draft = about_kernels(profile, kernels, sure, |who| {
        format!("{who}: some take several times as long as others, which suggests a straggler")
    });
    Outcome::found(Draft { change: Some(change), ..draft })
}

/// Whether a collective takes so much of the span that it matters; its waiting for other ranks is
/// not counted.
fn matters(profile: &Profile, collective: &Collective) -> bool {
    collective.least() * collective.on_device.len() as f64 >= MATTERS * profile.totals.span_ns
}

fn judge_small(profile: &Profile) -> Outcome {
    let fault = |collective: &Collective, kernel: &Kernel| {
        let many = collective.launches >= MANY.saturating_mul(collective.on_device.len() as u64);
        if !many || collective.mean_ns() >= SMALL_NS || !matters(profile, collective) {
            return None;
        }
        Some(Fault {
            evidence: vec![
                Evidence::new("mean time", Figure::measured(collective.mean_ns()), Unit::Nanoseconds)
                    .compared_as(format!("shorter than {}, so latency rather than transfer", time(SMALL_NS))),
                Evidence::new("launches", Figure::measured(kernel.launches.ran() as f64), Unit::Count)
                    .decrease_towards(0.0),
            ],
            change: format!(
                "reduce many tensors at once: {} collectives of {} each are latency, not transfer",
                kernel.launches.ran(),
                time(collective.mean_ns())
            ),
            saves: Ok(Figure::predicted(0.9, (0.5, 1.0))),
            threads: None,
        })
    };
    let because = "latency and host overhead of a collective hardly depend on its size";
    let outcome =
        judge(profile, fault, Level::High, because, |who| format!("{who}: each collective is small"));
    let Outcome::Found(mut draft) = outcome else { return outcome };
    let share = share_of_launches(profile, draft.kernels.iter().map(|found| &profile.kernels[found.kernel]));
    let idle = idle_around_launches(profile, Figure::predicted(0.9 * share, (share / 2.0, share)));
    draft.saving = Saving { beyond: idle, ..Saving::default() };
    Outcome::Found(draft)
}

fn judge_exposed(profile: &Profile) -> Outcome {
    if on_the_clock(profile) < ALONE {
        return Outcome::Clear;
    }
    let fault = |collective: &Collective, kernel: &Kernel| {
        if collective.mean_ns() < SMALL_NS || !matters(profile, collective) {
            return None;
        }
        let own = *collective.on_device.get(&kernel.device?)?;
        let transfer = collective.least() / own;
        Some(Fault {
            evidence: vec![
                Evidence::new("transfer", Figure::measured(collective.least()), Unit::Nanoseconds)
                    .decrease_towards(0.0),
            ],
            change: "start each collective as soon as its data are ready, and compute at the same time"
                .to_owned(),
            saves: Ok(Figure::predicted(transfer / 2.0, (0.0, transfer))),
            threads: None,
        })
    };
    let because =
        "overlapping kernels become slower, and the last collective of a step has nothing to overlap with";
    judge(profile, fault, Level::Medium, because, |who| format!("{who}: no overlap with computation"))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{
        activity, assert_clear_in, assert_finds_in, called, device, named, profile_of, timed,
    };
    use super::{EXPOSED, SLOW_RANK, SMALL};
    use crate::advise::{Options, advise};
    use apex_profile::{Accounts, Activity, Device, Figure, Kernel, Process, Profile};

    /// Returns a thousand collectives on each of two devices, each of this number of nanoseconds,
    /// in a span of ten seconds.
    fn ranks(each_ns: [f64; 2]) -> Profile {
        let on = |rank: usize| Kernel {
            device: Some(rank),
            ..called(
                timed(
                    named("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
                    each_ns[rank],
                ),
                1000,
                3000.0,
            )
        };
        let mut profile = profile_of([on(0), on(1)]);
        // The process that started last, rank 0, uses GPU 0: neither list is in the order of ranks.
        let on = |ordinal| Device { ordinals: vec![ordinal], ..device() };
        let by = |process, ordinal| Activity {
            process,
            device: Some(process),
            ordinal: Some(ordinal),
            ..activity(5e9, 0.1)
        };
        let ranked = |pid, rank| Process { pid, rank: Some(rank), ..Process::default() };
        profile.devices = vec![on(1), on(0)];
        profile.processes = vec![ranked(651, 1), ranked(650, 0)];
        profile.activities = vec![by(0, 1), by(1, 0)];
        profile
    }

    #[test]
    fn the_rank_that_waits_tells_of_a_slow_one() {
        let finding = assert_finds_in(&SLOW_RANK, ranks([1e6, 2e6]));
        assert_eq!(finding.kernels.len(), 1, "only the one that waits");
        assert!(
            finding.change.starts_with(
                "give the ranks equal work: rank 0 (process 650, GPU 0) waits 50% of the collective's time for rank 1 \
                    (process 651, GPU 1)"
            ),
            "{}",
            finding.change
        );
        let share = finding.saving.of_job.expect("timed").value;
        assert!(
            (share - 0.1).abs() < 1e-9,
            "balanced, both devices gain half of the second that one waits: {share}"
        );
        assert_clear_in(&SLOW_RANK, ranks([1e6, 1.4e6]));
    }

    #[test]
    fn the_wait_has_one_figure_and_the_slow_rank_is_named_with_its_work() {
        let mut job = ranks([1e6, 2e6]);
        let busy = |kernels: f64, waiting: f64| Accounts {
            span_ns: 5e9,
            kernels: Figure::measured(kernels),
            waiting: Figure::measured(waiting),
            collectives: Figure::measured(1e9),
            ..Accounts::default()
        };
        job.activities[0].accounts = busy(3.5e9, 0.0);
        // Kernels run beside a part of the second that it waits.
        job.activities[1].accounts = busy(2.0e9, 0.8e9);
        let finding = assert_finds_in(&SLOW_RANK, job.clone());
        let expected = "give the ranks equal work: rank 0 (process 650, GPU 0) waits 16% of its time for rank 1 \
            (process 651, GPU 1), which spends 70% of its time in kernels (the waiting one 40%)";
        assert_eq!(finding.change, expected);
        let saving = finding.saving.time_ns.expect("timed");
        assert!((saving.value - 0.8e9).abs() < 1.0 && saving.bounds().1 <= 2.8e9, "{saving:?}");
        // Where a device is used by two processes, neither is accused.
        job.activities.push(Activity { process: 0, ..job.activities[1].clone() });
        let finding = assert_finds_in(&SLOW_RANK, job);
        assert!(
            finding.change.contains(": GPU 0 waits 50% of the collective's time for rank 1 ("),
            "{}",
            finding.change
        );
    }

    #[test]
    fn a_slow_rank_does_not_hide_fp32_products() {
        let mut both = ranks([1e6, 2e6]);
        both.kernels.push(Kernel { device: Some(1), ..timed(named("ampere_sgemm_128x64_tn"), 2e6) });
        both.totals.gpu_time_ns = both.totals.gpu_time_ns.map(|time| time.scaled(5.0 / 3.0));
        let advice = advise(&both, &Options::default());
        let shown: Vec<&str> = advice.findings.iter().take(3).map(|finding| finding.rule.as_str()).collect();
        assert!(shown.contains(&SLOW_RANK.id) && shown.contains(&"APEX-T60"), "{shown:?}");
    }

    #[test]
    fn small_ones_are_many_and_short() {
        assert_finds_in(&SMALL, Profile { totals: short_span(), ..ranks([15e3, 15e3]) });
        assert_clear_in(&SMALL, ranks([15e3, 15e3]));
        assert_clear_in(&SMALL, ranks([1e6, 1e6]));
    }

    fn short_span() -> apex_profile::Totals {
        apex_profile::Totals { span_ns: 0.1e9, ..ranks([15e3, 15e3]).totals }
    }

    #[test]
    fn exposed_ones_are_long_and_alone() {
        let finding = assert_finds_in(&EXPOSED, ranks([1e6, 1e6]));
        let share = finding.saving.of_job.expect("timed");
        assert!((share.value - 0.1).abs() < 1e-9, "{share:?}");
        // 2 s of kernels in 1.8 s: some of them overlap.
        let mut overlapping = ranks([1e6, 1e6]);
        overlapping.activities = vec![activity(1e9, 0.1), activity(1e9, 0.1)];
        assert_clear_in(&EXPOSED, overlapping);
    }

    #[test]
    fn one_rank_alone_tells_by_its_spread() {
        let mut one = ranks([2e6, 2e6]);
        one.kernels.truncate(1);
        assert_clear_in(&SLOW_RANK, one.clone());
        let each = &mut one.kernels[0].gpu.as_mut().expect("timed").each;
        (each.p10_ns, each.p90_ns) = (1e6, 3e6);
        let finding = assert_finds_in(&SLOW_RANK, one);
        assert!(finding.change.starts_with("this rank waits 50%"), "{}", finding.change);
    }

    #[test]
    fn one_device_has_nobody_to_wait_for() {
        let mut one = ranks([1e6, 2e6]);
        one.kernels.truncate(1);
        for rule in [&SLOW_RANK, &SMALL, &EXPOSED] {
            assert_clear_in(rule, one.clone());
        }
    }
}
