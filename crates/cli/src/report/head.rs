//! The head of a report: what the time went into, what to change, what that saves; then the
//! accounts as bars.

use super::what_is_missing;
use crate::filters::Shown;
use crate::text::figures::share;
use crate::text::{Ink, Style, bar, wrap};
use crate::units;
use apex_advice::{Advice, Finding, Scope};
use apex_profile::{
    Account, Accounts, Figure, IdleCause, Iterations, PhaseKind, Process, Profile, SaturatingSum as _, total,
};
use std::collections::BTreeSet;
use std::io::{self, Write};

/// A GPU that is idle for less is busy.
const IDLE: f64 = 0.25;
/// What takes less is not worth a word.
const LEAST: f64 = 0.02;
/// Unknown time above this share leaves nothing to say.
const UNKNOWN: f64 = 0.5;
/// Characters of a full bar, where there is room.
const BAR: usize = 30;
/// Characters of a line of accounts beside heads, names and bars.
const COLUMNS: usize = 23;

/// What rules look at, in a word, and the rules: it is fine where all of these found nothing.
const TOPICS: [(&str, &[&str]); 8] = [
    ("copies", &["pageable-async-copy", "synchronous-calls"]),
    ("allocation", &["repeated-allocation"]),
    ("pauses", &["gpu-gap"]),
    ("synchronisation", &["frequent-synchronisation"]),
    ("launch calls", &["slow-launch", "launch-bound", "short-kernels", "tiny-launches"]),
    ("launch shapes", &["block-not-warp-multiple", "small-grid", "tail-wave", "sub-wave-grid"]),
    ("occupancy", &["low-occupancy"]),
    ("memory accesses", &["uncoalesced-access", "bank-conflicts"]),
];

/// `each step`, `the start-up`.
fn of_what(shown: &Shown<'_>) -> String {
    match shown.phase {
        Some(PhaseKind::Steady) => "each step".into(),
        Some(phase) => format!("the {}", phase.name()),
        None if shown.is_window() => "the window".into(),
        None => "the time".into(),
    }
}

/// The verdict, in at most three lines before they are wrapped.
pub fn verdict(shown: &Shown<'_>, advice: &Advice, width: usize) -> Vec<String> {
    let lines = if let Some(kernels) = &shown.kernels {
        let first = if shown.job.on_cpu_device() { counted_first(advice) } else { worth(advice) };
        [Some(of_kernels(shown, kernels)), None, first.map(|first| remedy(shown, first))]
    } else if shown.job.on_cpu_device() {
        let first = counted_first(advice);
        [Some(on_cpu(shown, first)), None, first.map(|first| remedy(shown, first))]
    } else {
        [Some(time_went(shown, advice)), lasted(shown), worth(advice).map(|first| remedy(shown, first))]
    };
    lines.into_iter().flatten().flat_map(|line| wrap(&line, width, "  ")).collect()
}

/// What of the launches and of the GPU time is the kernels' that were asked for.
fn of_kernels(shown: &Shown<'_>, kernels: &BTreeSet<usize>) -> String {
    let (all, profile) = (&shown.job, shown.profile());
    let launched = all.kernels.iter().filter(|kernel| kernel.launches.any()).count();
    let ran: u64 = profile.kernels.iter().map(|kernel| kernel.launches.ran()).saturating_sum();
    let launches = format!("{} of {} launches", units::count(ran), units::count(all.totals.kernels_run()));
    let who = match kernels.iter().next().filter(|_| kernels.len() == 1) {
        Some(&one) => format!("`{}`", all.kernels[one].short_name),
        None => format!("{} of {launched} kernels", kernels.len()),
    };
    let whole = all.totals.gpu_time_ns.map_or(0.0, |time| time.value);
    let own = total(profile.kernels.iter().filter_map(apex_profile::Kernel::gpu_total_ns));
    if all.on_cpu_device() || whole <= 0.0 {
        return format!("{who}: {launches}.");
    }
    format!(
        "{who}: {} of the kernels' time ({}ᵐ), in {launches}.",
        units::share(own / whole),
        units::time(own)
    )
}

/// The first finding that the CPU device's counts show; the first of all where they show none.
fn counted_first(advice: &Advice) -> Option<&Finding> {
    let counted = advice.findings.iter().find(|finding| finding.rule.starts_with("APEX-C"));
    counted.or(advice.findings.first())
}

/// Without a GPU the first finding is the verdict: how long things took says nothing about a GPU.
fn on_cpu(shown: &Shown<'_>, first: Option<&Finding>) -> String {
    match first {
        Some(first) => match first.kernels.first() {
            Some(kernel) => format!("{}, above all in `{}`.", first.title, kernel.name),
            None => format!("{}: {}.", first.title, first.summary),
        },
        None if shown.job.kernels.is_empty() => format!("No {}.", what_is_missing(&shown.job)),
        None => format!(
            "{} on the CPU device: no rule found a fault; its times say nothing about a GPU.",
            units::counted(shown.job.totals.kernels_run(), "launch", "launches")
        ),
    }
}

/// What the time went into.
fn time_went(shown: &Shown<'_>, advice: &Advice) -> String {
    let accounts = shown.accounts();
    let (span, of_what) = (accounts.span_ns.max(1.0), of_what(shown));
    let part = |time: Figure| time.value / span;
    if shown.job.activities.is_empty() {
        return format!("No {}.", what_is_missing(&shown.job));
    }
    if accounts.unknown_share() > UNKNOWN {
        return format!(
            "What the GPU does in {} of {of_what} is not known: too few launches were timed (--timing sampled or all).",
            units::share(accounts.unknown_share())
        );
    }
    if let Some((process, waits)) = waiting(&shown.job).filter(|(_, waits)| *waits > IDLE / 2.0) {
        let pid = process.pid;
        let who =
            process.rank.map_or(format!("Process {pid}"), |rank| format!("Rank {rank} (process {pid})"));
        return format!("{who} waits {} of {of_what} in collectives for a slower rank.", units::share(waits));
    }
    let idle = accounts.idle_ns();
    if part(idle) >= IDLE {
        return format!(
            "The GPU is idle {} of {of_what}: {}.",
            share_of(idle, span),
            why_idle(shown, &accounts, advice)
        );
    }
    let busy = |what: &str, time: Figure| format!("{what} take {} of {of_what}", share_of(time, span));
    if part(accounts.collectives) > IDLE {
        return format!("{}, while nothing is computed.", busy("Collectives", accounts.collectives));
    }
    if part(accounts.copies) > IDLE {
        return format!("{}, while no kernel runs.", busy("Copies", accounts.copies));
    }
    let top = shown
        .job
        .kernels
        .iter()
        .max_by(|a, b| a.gpu_total_ns().unwrap_or(0.0).total_cmp(&b.gpu_total_ns().unwrap_or(0.0)));
    let whole = shown.job.totals.gpu_time_ns.map_or(0.0, |time| time.value);
    let top = top.filter(|_| whole > 0.0).map_or(String::new(), |kernel| {
        let share = kernel.gpu_total_ns().unwrap_or(0.0) / whole;
        format!("; `{}` takes {} of its kernels' time", kernel.short_name, units::share(share))
    });
    format!(
        "The GPU is busy {} of {of_what}{top}.",
        units::share(part(accounts.kernels) + part(accounts.copies))
    )
}

/// The process that waits for others for the largest share of its time.
fn waiting(profile: &Profile) -> Option<(&Process, f64)> {
    let waits = profile.activities.iter().filter(|activity| activity.span_ns > 0.0).filter_map(|activity| {
        let process = profile.processes.get(activity.process)?;
        Some((process, activity.accounts.waiting.value / activity.span_ns))
    });
    waits.max_by(|a, b| a.1.total_cmp(&b.1))
}

/// Why the device is idle: a pause where one takes most of it, else what the host does for most of
/// it.
fn why_idle(shown: &Shown<'_>, accounts: &Accounts, advice: &Advice) -> String {
    let idle = accounts.idle_ns().value;
    let paused = total(shown.job.activities.iter().map(|activity| activity.long_gaps_ns));
    let gaps = shown.job.activities.iter().filter_map(|activity| Some((activity, activity.gaps.first()?)));
    let longest = gaps.max_by(|a, b| a.1.duration_ns.value.total_cmp(&b.1.duration_ns.value));
    if let Some((activity, gap)) = longest.filter(|_| paused > idle / 2.0) {
        let name = |kernel: Option<usize>| Some(&shown.job.kernels.get(kernel?)?.short_name);
        let between = match (name(gap.before), name(gap.after)) {
            (Some(before), Some(after)) => format!(", between `{before}` and `{after}`"),
            _ => String::new(),
        };
        let most = gap.by.iter().max_by(|a, b| a.1.total_cmp(b.1)).map_or("", |(cause, _)| while_in(*cause));
        return format!(
            "{} at a stretch, {} after its first launch{between}, {most}",
            units::time(gap.duration_ns.value),
            units::time((gap.start_ns - activity.start_ns).max(0.0))
        );
    }
    let causes = advice
        .findings
        .iter()
        .filter(|finding| finding.saving.of_job.is_some_and(|share| share.value >= LEAST));
    for cause in causes {
        match cause.slug.as_str() {
            "launch-bound" | "tiny-launches" => return "the host launches kernels too slowly".into(),
            "frequent-synchronisation" => return "the host waits for it in every iteration".into(),
            "host-bound" => return "it waits for the program's own code".into(),
            _ => {}
        }
    }
    let most = accounts.idle.iter().max_by(|a, b| a.1.value.total_cmp(&b.1.value));
    most.map_or("", |(cause, _)| while_in(*cause)).into()
}

/// What the host does meanwhile.
fn while_in(cause: IdleCause) -> &'static str {
    match cause {
        IdleCause::Launching => "while the host is in launch calls",
        IdleCause::Allocating => "while the host allocates and frees memory",
        IdleCause::Transferring => "while the host waits for copies",
        IdleCause::Synchronising => "while the host returns from synchronising",
        IdleCause::Loading => "while the host loads code",
        IdleCause::Capturing => "while the host captures graphs",
        IdleCause::OtherCalls => "while the host is in other driver calls",
        IdleCause::HostCode => "while the host runs the program's own code",
    }
}

/// How long a step takes, or the whole.
fn lasted(shown: &Shown<'_>) -> Option<String> {
    let accounts = shown.accounts();
    let kernels = |by: f64| units::time((accounts.kernels.value + accounts.collectives.value) / by);
    if let (Some(iterations), Some(steps)) = (shown.iterations(), shown.steps()) {
        let d = &iterations.duration;
        return Some(format!(
            "A step takes {}ᵐ (median of {}; eight of ten take {} to {}); its kernels take {}ᵖ.",
            units::time(d.median_ns),
            units::count(iterations.count),
            units::time(d.p10_ns),
            units::time(d.p90_ns),
            kernels(steps)
        ));
    }
    (accounts.span_ns > 0.0).then(|| {
        let phases = shown.whole.activities.iter().all(|activity| activity.iterations.is_none());
        let none = if phases && !shown.is_window() {
            " No sequence of launches repeats: there are no steps."
        } else {
            ""
        };
        let of = if shown.is_window() { "Of the window, from" } else { "From" };
        format!(
            "{of} its first to its last work {} pass; kernels take {}.{none}",
            units::time(accounts.span_ns),
            kernels(1.0)
        )
    })
}

/// The first finding whose saving is worth a word.
fn worth(advice: &Advice) -> Option<&Finding> {
    advice
        .findings
        .iter()
        .find(|finding| finding.saving.of_job.is_some_and(|share| share.bounds().1 >= LEAST))
}

/// What to change, and what that saves.
fn remedy(shown: &Shown<'_>, finding: &Finding) -> String {
    let change = finding.change.split("; ").next().unwrap_or_default().trim_end_matches('.');
    let saving = finding.saving.time_ns.filter(|_| !shown.job.on_cpu_device());
    let Some(saving) = saving else { return format!("→ {change}.") };
    let (saving, each) = match shown.steps() {
        Some(steps) => (saving.scaled(1.0 / steps), " a step"),
        _ => (saving, ""),
    };
    let (low, high) = saving.bounds();
    let kind = if finding.scope == Scope::Host { " of idle time" } else { "" };
    let amount = if low > LEAST * high {
        format!("{} to {}", units::time(low), units::time(high))
    } else {
        format!("up to {}", units::time(high))
    };
    format!("→ {change}: saves {amount}{each}{kind}.")
}

/// The accounts as bars, a step's where there are steps.
pub fn accounts(out: &mut dyn Write, shown: &Shown<'_>, style: Style, width: usize) -> io::Result<()> {
    let accounts = shown.accounts();
    if accounts.span_ns <= 0.0 || shown.job.on_cpu_device() {
        return Ok(());
    }
    let by = shown.steps().unwrap_or(1.0);
    let title = match (shown.steps(), shown.phase) {
        (Some(_), _) => "step".to_owned(),
        (None, Some(phase)) => phase.name().to_owned(),
        (None, None) => "span".to_owned(),
    };
    writeln!(out)?;
    let mut entries = accounts.entries();
    entries.sort_by_key(|(account, _)| matches!(account, Account::Unknown));
    let names = entries.iter().map(|(account, _)| account.name().chars().count()).max().unwrap_or(0);
    let heads = [title, units::time(accounts.span_ns / by)];
    let lead = heads.iter().map(|head| head.chars().count()).max().unwrap_or(0);
    let bars = width.saturating_sub(lead + names + COLUMNS).min(BAR);
    for (row, (account, time)) in entries.into_iter().enumerate() {
        let share = time.value / accounts.span_ns;
        let head = heads.get(row).map_or("", String::as_str);
        let ink = if matches!(account, Account::Idle(_)) { Ink::Warning } else { Ink::Dim };
        writeln!(
            out,
            "  {head:lead$}  {:>9}  {:names$}  {:>4}  {}",
            units::time(time.value / by),
            account.name(),
            units::share(share),
            style.paint(ink, bar(share, bars).trim_end())
        )?;
    }
    Ok(())
}

/// What was checked and found fine, and where the rest of the run went.
pub fn notes(shown: &Shown<'_>, advice: &Advice) -> Vec<String> {
    let mut notes = Vec::new();
    let wall = shown.whole.totals.wall_ns;
    let begins_late = |iterations: &&Iterations| iterations.start_ns > LEAST * wall && !shown.is_window();
    if let Some(iterations) = shown.iterations().filter(begins_late) {
        notes.push(format!(
            "Start-up and warm-up took {} of {}: --phase startup, warmup or all shows them.",
            units::time(iterations.start_ns),
            units::time(wall)
        ));
    }
    let clear = |slug: &&str| advice.clear.iter().any(|clear| clear == slug);
    let fine = TOPICS.iter().filter(|(_, rules)| rules.iter().all(&clear));
    let fine: Vec<&str> = fine.map(|(topic, _)| *topic).collect();
    if !fine.is_empty() && !shown.job.kernels.is_empty() {
        notes.push(format!("Checked and fine: {}.", fine.join(", ")));
    }
    notes
}

/// What recording cost. Where the GPU is hardly ever idle, the host has time to spare.
pub fn recorder(profile: &Profile, advice: &Advice) -> String {
    let idle = profile.accounts().idle_ns().value / profile.accounts().span_ns.max(1.0);
    let saturated = !profile.on_cpu_device() && profile.totals.gpu_time_ns.is_some() && idle < 0.1;
    match &advice.verdict.overhead_share {
        None => "recorder's cost not known".into(),
        Some(overhead) if saturated => {
            format!("recorder {} of the host's time, behind a busy GPU", share(overhead))
        }
        Some(overhead) => format!("recorder {} of the host's time", share(overhead)),
    }
}

/// A share with its interval, where that says anything.
fn share_of(time: Figure, span: f64) -> String {
    let (low, high) = time.bounds();
    let [value, low, high] = [time.value, low, high].map(|end| end / span);
    if high - low < 0.02 { units::share(value) } else { units::share_between(value, low, high.min(1.0)) }
}
