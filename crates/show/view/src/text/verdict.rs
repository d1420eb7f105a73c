//! The verdict: where the time of a session or of a part of it went, what to change, and what that
//! saves.

use apex_ordered::Gather;
use std::collections::BTreeSet;

use apex_advice::rules::{COSTLY_LINE, Rule};
use apex_advice::{Advice, Finding, Scope, Severity};
use apex_machine::Summary;
use apex_profile::names::OwnerKind;
use apex_profile::{
    Accounts, Activity, Figure, HostProfile, HostState, IdleCause, Iterations, Kernel, Profile,
    SaturatingSum as _, total,
};

use super::{figures, machine};
use apex_profile::units;

/// A GPU that is idle for less is busy.
const IDLE: f64 = 0.25;
/// Least share that is worth a word.
pub const LEAST: f64 = 0.02;
/// A kernel with less of the counted work is no verdict on a program.
const COUNTED: f64 = 0.03;
/// A kernel with this share of the kernels' time is what the GPU does.
const MAIN: f64 = 0.5;
/// A cause with this share of the idle time stands for all of it.
const ALL: f64 = 0.9;
/// Unknown time above this share leaves nothing to say.
const UNKNOWN: f64 = 0.5;

/// Subject of a verdict.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    /// The part of the run.
    pub job: &'a Profile,
    /// As a sentence names it: `each step`, `the start-up`, `the last 5 s`.
    pub name: String,
    /// The iterations of the device with the most of them, where the part consists of iterations.
    pub iterations: Option<&'a Iterations>,
    /// Steps of all devices, where the part consists of them.
    pub steps: Option<f64>,
    /// Whether the part is a window of the run.
    pub is_window: bool,
    /// Whether the whole run was searched for steps and has none.
    pub is_without_steps: bool,
    /// The kernels that alone are meant; `None` for all of them.
    pub kernels: Option<Chosen<'a>>,
    /// State of the machine meanwhile; `None` where that is not known.
    pub machine: Option<&'a Summary>,
}

/// Kernels of a part.
#[derive(Clone, Copy, Debug)]
pub struct Chosen<'a> {
    /// Their places in the profile.
    pub kernels: &'a BTreeSet<usize>,
    /// The part without launches of other kernels.
    pub profile: &'a Profile,
}

/// The verdict: what the time went into, how busy the units of a busy device were, how long it
/// took, and what to change; a sentence each, of which the last three may be missing.
pub fn sentences(part: &Part<'_>, advice: &Advice) -> Vec<String> {
    let first = match part.job.on_cpu_device() {
        // What is wrong comes before what is slow.
        true => counted_first(part.job, advice).filter(|_| part.job.defects.is_empty()),
        false => worth(advice),
    };
    let lasted = if part.kernels.is_some() || part.job.on_cpu_device() { None } else { lasted(part) };
    let first = first.or_else(|| fault_of_longest(part.job, advice));
    let remedy = first.map(|first| remedy(part, first)).or_else(|| next_look(part));
    [Some(sentence(part, advice)), units_of(part), lasted, remedy].into_iter().flatten().collect()
}

/// Use of the units of a busy device.
fn units_of(part: &Part<'_>) -> Option<String> {
    let is_shown = !part.job.on_cpu_device() && part.kernels.is_none() && keeps_busy(part.job);
    machine::busy_units(part.machine.filter(|_| is_shown)?)
}

/// Whether kernels run most of the time.
fn keeps_busy(job: &Profile) -> bool {
    let accounts = job.accounts();
    accounts.kernels.value >= (1.0 - IDLE) * accounts.span_ns
}

/// The first finding about the kernel that takes most of the GPU time of a busy device, where what
/// the change saves is unknown.
fn fault_of_longest<'a>(job: &Profile, advice: &'a Advice) -> Option<&'a Finding> {
    let (kernel, share) = longest(job).filter(|_| !job.on_cpu_device() && keeps_busy(job))?;
    let is_about = |finding: &&Finding| {
        let mut kernels = finding.kernels.iter().filter_map(|found| job.kernels.get(found.kernel));
        finding.saving.of_job.is_none()
            && finding.severity > Severity::Info
            && kernels.any(|found| std::ptr::eq(found, kernel))
    };
    advice.findings.iter().filter(|_| share >= MAIN).find(is_about)
}

/// Where no rule names a change and one of the program's own kernels keeps the GPU busy: how to see
/// what limits it.
fn next_look(part: &Part<'_>) -> Option<String> {
    if part.job.on_cpu_device() || part.kernels.is_some() || !keeps_busy(part.job) {
        return None;
    }
    let (kernel, share) = longest(part.job)?;
    let is_own = kernel.traits.owner.kind() == OwnerKind::Own;
    if !is_own || share < MAIN {
        return None;
    }
    // Triton's kernels come as machine code, which the CPU device does not execute.
    let is_in_python =
        part.job.kernels.iter().any(|kernel| kernel.traits.owner.kind() == OwnerKind::Framework);
    let code = part.job.code.is_none().then_some("`apex run --code` tells what bounds it");
    let counts = (!is_in_python)
        .then_some("`apex run --device cpu` counts its instructions and accesses by line, on a small input");
    let how: Vec<&str> = [code, counts].into_iter().flatten().collect();
    (!how.is_empty())
        .then(|| format!("No rule names a change. To look into `{}`: {}.", kernel.short_name, how.join("; ")))
}

/// The kernel that takes most GPU time, and its share of it.
fn longest(job: &Profile) -> Option<(&Kernel, f64)> {
    let whole = job.totals.gpu_time_ns.map(|time| time.value).filter(|whole| *whole > 0.0)?;
    let timed = job.kernels.iter().filter_map(|kernel| Some((kernel, kernel.gpu_total_ns()? / whole)));
    timed.max_by(|a, b| a.1.total_cmp(&b.1))
}

/// The first sentence of the verdict.
pub fn sentence(part: &Part<'_>, advice: &Advice) -> String {
    if let Some(host) = &part.job.host {
        return of_host(part.job, host);
    }
    match &part.kernels {
        Some(kernels) => of_kernels(part, kernels),
        None if part.job.on_cpu_device() => on_cpu(part, counted_first(part.job, advice)),
        None => time_went(part, advice),
    }
}

/// The verdict on a session of `apex attach`: what its threads did.
fn of_host(job: &Profile, host: &HostProfile) -> String {
    let running = host.running_ns();
    if host.threads.is_empty() {
        return "No thread of the process was sampled; its launches are not seen.".to_owned();
    }
    let places = job.host_places(|one| one.state == HostState::Running);
    let most = places.first().filter(|_| running > 0.0);
    let most = most.map_or_else(String::new, |(place, ns)| {
        format!(", {} of that at {place}", units::share(ns / running))
    });
    let threads = running / host.span_ns.max(1.0);
    format!("On average {threads:.2} threads ran or were ready to run{most}; launches are not seen.")
}

/// What of the launches and of the GPU time is the kernels' that were asked for.
fn of_kernels(part: &Part<'_>, chosen: &Chosen<'_>) -> String {
    let (all, Chosen { kernels, profile }) = (part.job, *chosen);
    let launched = all.kernels.iter().filter(|kernel| kernel.launches.any()).count();
    let ran: u64 = profile.kernels.iter().map(|kernel| kernel.launches.ran()).saturating_sum();
    let launches = format!("{} of {}", units::count(ran), launches(all));
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

/// The first finding that matters without a GPU: its kernels do at least [`COUNTED`] of the counted
/// work (a grid that leaves SMs empty weighs more), or it is about the host and does not depend on
/// times.
fn counted_first<'a>(job: &Profile, advice: &'a Advice) -> Option<&'a Finding> {
    let shares = job.counted_shares();
    let matters = |finding: &&Finding| {
        finding.counted_weight(&shares) >= COUNTED
            || (finding.scope == Scope::Host && finding.severity >= Severity::Low)
    };
    match shares.iter().all(|share| *share == 0.0) {
        true => advice.findings.first(),
        false => advice.findings.iter().find(matters),
    }
}

/// Without a GPU the first defect is the verdict, or the first finding: how long things took says
/// nothing about a GPU.
fn on_cpu(part: &Part<'_>, first: Option<&Finding>) -> String {
    if let Some(defect) = part.job.defects.first() {
        let more = match part.job.defects.len() - 1 {
            0 => String::new(),
            more => format!(", and {} more", units::count(more as u64)),
        };
        let kernel = apex_profile::names::identify(&defect.kernel).short_name;
        return format!(
            "Defects in kernels: {} in `{kernel}` at {}{more}.",
            defect.kind,
            defect.place.shown()
        );
    }
    match first {
        Some(first) => match first.kernels.first() {
            Some(kernel) => {
                format!("{}, mostly in `{}`{}.", first.title, kernel.name, how_much(part.job, kernel.kernel))
            }
            None => format!("{}: {}.", first.title, first.summary),
        },
        None if part.job.kernels.is_empty() => format!("No {}.", what_is_missing(part.job)),
        None => without_fault(part.job),
    }
}

/// Says how much a kernel executes or accesses that does less than half of what was counted.
fn how_much(job: &Profile, kernel: usize) -> String {
    match job.counted_part([kernel]) {
        Some((share, what)) if share < 0.5 => format!(", which has {} of the {what}", units::share(share)),
        _ => String::new(),
    }
}

/// Says that the rules found nothing that matters, and names the kernel that does most of the work.
fn without_fault(job: &Profile) -> String {
    let shares = job.counted_shares();
    let most = (0..shares.len()).max_by(|&a, &b| shares[a].total_cmp(&shares[b]));
    match most.and_then(|most| Some((&job.kernels[most], job.counted_part([most])?))) {
        Some((kernel, (share, what))) => format!(
            "The rules found nothing in `{}`, which has {} of the {what}.",
            kernel.short_name,
            units::share(share)
        ),
        None => {
            let launches = launches(job);
            format!("{launches} on the CPU device: the rules found nothing; the times are not a GPU's.")
        }
    }
}

/// How many kernels ran: `3 launches`, or `at least 3 launches` where nobody knows how often the
/// device ran the bodies of conditional nodes.
pub fn launches(profile: &Profile) -> String {
    let least = if profile.uncounted_nodes() > 0 { "at least " } else { "" };
    format!("{least}{}", units::counted(profile.totals.kernels_run(), "launch", "launches"))
}

/// Says what the time went into.
fn time_went(part: &Part<'_>, advice: &Advice) -> String {
    let accounts = part.job.accounts();
    let (span, of_what) = (accounts.span_ns.max(1.0), &part.name);
    let of_span = |time: Figure| time.value / span;
    if part.job.device_is_unknown() {
        return "The session does not name the device: it is unknown whether its times are a GPU's."
            .to_owned();
    }
    if part.job.activities.is_empty() {
        return format!("No {}.", what_is_missing(part.job));
    }
    if accounts.unknown_share() > UNKNOWN {
        return format!(
            "GPU activity is unknown for {} of {of_what}: too few launches were timed (use --timing sampled \
                or all).",
            units::share(accounts.unknown_share())
        );
    }
    if let Some((waiting, waits)) = waiting(part.job).filter(|(_, waits)| *waits > IDLE / 2.0) {
        let (who, whom) = (part.job.user_in_words(waiting), straggler(part.job, waiting));
        // The bars and the savings are of all devices together.
        let average = together(part.job).map_or_else(String::new, |all| {
            format!(", on average over {all} {} of {of_what}", units::share(of_span(accounts.waiting)))
        });
        return format!(
            "{} waits for {whom} in collectives for {} of its time{average}.",
            capitalised(&who),
            units::share(waits)
        );
    }
    let idle = accounts.idle_ns();
    let busy = |what: &str, time: Figure| format!("{what} take {} of {of_what}", share_of(time, span));
    let copying = |beside: &str| {
        format!("{}, without overlapping kernels{beside}.", busy(what_copies(part.job), accounts.copies))
    };
    if of_span(accounts.copies) > IDLE.max(of_span(idle)) {
        return match of_span(idle) >= IDLE {
            true if gpus(part.job) > 1 => {
                copying(&format!("; for {} of {of_what} the GPUs are idle", share_of(idle, span)))
            }
            true => copying(&format!("; for {} of {of_what} the GPU is idle", share_of(idle, span))),
            false => copying(""),
        };
    }
    if of_span(idle) >= IDLE {
        // A finding may be about one of several devices, whose idle share differs.
        let (who, average) = match gpus(part.job) {
            0 | 1 => ("The GPU is".to_owned(), ""),
            all => (format!("The {all} GPUs are"), " on average"),
        };
        let why = why_idle(part, &accounts, advice);
        return format!("{who} idle {} of {of_what}{average}: {why}.", share_of(idle, span));
    }
    if of_span(accounts.collectives) > IDLE {
        return format!("{}, without overlapping computation.", busy("Collectives", accounts.collectives));
    }
    if of_span(accounts.copies) > IDLE {
        return copying("");
    }
    // Of kernels in graphs no times are known, and the longest of the others may be next to
    // nothing.
    let top =
        longest(part.job).filter(|(_, share)| *share >= LEAST).map_or(String::new(), |(kernel, share)| {
            format!("; `{}` takes {} of its kernels' time", kernel.short_name, units::share(share))
        });
    format!(
        "The GPU is busy {} of {of_what}{top}.",
        units::share(of_span(accounts.kernels) + of_span(accounts.copies))
    )
}

/// What the accounts of a job are of, where they are of several: `2 ranks`, `3 processes`, `4
/// GPUs`.
pub fn together(job: &Profile) -> Option<String> {
    let used = || job.activities.iter().filter(|activity| activity.accounts.span_ns > 0.0);
    let count = used().count();
    let processes: BTreeSet<usize> = used().map(|activity| activity.process).gathered();
    let is_ranked =
        |&process: &usize| job.processes.get(process).is_some_and(|process| process.rank.is_some());
    let what = match (processes.len() == count, processes.iter().all(is_ranked)) {
        (false, _) => "GPUs",
        (true, true) => "ranks",
        (true, false) => "processes",
    };
    (count > 1).then(|| format!("{count} {what}"))
}

/// The process that waits for others for the largest share of its time.
fn waiting(profile: &Profile) -> Option<(&Activity, f64)> {
    let waits = profile.activities.iter().map(|activity| (activity, waiting_share(activity)));
    waits.max_by(|a, b| a.1.total_cmp(&b.1))
}

fn waiting_share(activity: &Activity) -> f64 {
    activity.accounts.waiting.value / activity.accounts.span_ns.max(1.0)
}

/// The rank that `waiting` waits for, where it is the only one that hardly waits itself.
fn straggler(profile: &Profile, waiting: &Activity) -> String {
    let is_slow = |other: &&Activity| !std::ptr::eq(*other, waiting) && waiting_share(other) < LEAST;
    let mut slow = profile.activities.iter().filter(is_slow);
    match (slow.next(), slow.next()) {
        // Recordings of one process cannot be told apart.
        (Some(one), None) if profile.user_in_words(one) != profile.user_in_words(waiting) => {
            profile.user_in_words(one)
        }
        _ => "a slower rank".to_owned(),
    }
}

/// With a capital letter, as at the beginning of a sentence.
pub(super) fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Why the device is idle: a pause where one takes most of it, else what the host does for most of
/// it.
fn why_idle(part: &Part<'_>, accounts: &Accounts, advice: &Advice) -> String {
    let idle = accounts.idle_ns().value;
    if let Some((cause, share)) = advice.findings.first().and_then(|first| cause_of_idle(first, idle)) {
        let whole = share * idle / accounts.span_ns.max(1.0);
        return match share >= ALL {
            true => cause,
            false => format!(
                "{} of {} {cause}; for the rest {}",
                units::share(whole),
                part.name,
                account_of_idle(part, accounts, advice).0
            ),
        };
    }
    let (account, within) = account_of_idle(part, accounts, advice);
    within.map_or_else(|| account.clone(), |within| format!("{account}; {within}"))
}

/// What explains idle time where no finding names the cause: a pause that takes most of it, what a
/// general finding says, else what the host does for most of it. Also what lies within that.
fn account_of_idle(part: &Part<'_>, accounts: &Accounts, advice: &Advice) -> (String, Option<String>) {
    let idle = accounts.idle_ns().value;
    let paused = total(part.job.activities.iter().map(|activity| activity.long_gaps_ns));
    let gaps = part.job.activities.iter().filter_map(|activity| Some((activity, activity.gaps.first()?)));
    let longest = gaps.max_by(|a, b| a.1.duration_ns.value.total_cmp(&b.1.duration_ns.value));
    if let Some((activity, gap)) = longest.filter(|_| paused > idle / 2.0) {
        let name = |kernel: Option<usize>| Some(&part.job.kernels.get(kernel?)?.short_name);
        let between = match (name(gap.before), name(gap.after)) {
            (Some(before), Some(after)) => format!(", between `{before}` and `{after}`"),
            _ => String::new(),
        };
        let most = gap.by.iter().max_by(|a, b| a.1.total_cmp(b.1)).map_or("", |(cause, _)| while_in(*cause));
        let pause = format!(
            "{} without interruption, {} after the first launch{between}, {most}",
            units::time(gap.duration_ns.value),
            units::time((gap.start_ns - activity.start_ns).max(0.0))
        );
        return (pause, None);
    }
    let causes = advice
        .findings
        .iter()
        .filter(|finding| finding.saving.of_job.is_some_and(|share| share.value >= LEAST));
    for cause in causes {
        let what = match cause.slug.as_str() {
            "launch-bound" | "tiny-launches" => "the host launches kernels too slowly",
            "frequent-synchronisation" => "the host synchronises in every iteration",
            "host-bound" => waits_for_host(part.job),
            _ => continue,
        };
        return (what.to_owned(), cause.within_time.clone());
    }
    let most = accounts.idle.iter().max_by(|a, b| a.1.value.total_cmp(&b.1.value));
    (most.map_or("", |(cause, _)| while_in(*cause)).to_owned(), None)
}

fn waits_for_host(job: &Profile) -> &'static str {
    if gpus(job) > 1 { "they wait for host code" } else { "it waits for host code" }
}

/// How many devices have accounts.
fn gpus(job: &Profile) -> usize {
    let used = job.activities.iter().filter(|activity| activity.accounts.span_ns > 0.0);
    used.map(|activity| activity.device).collect::<BTreeSet<_>>().len()
}

/// What a finding says of the idle time, and the share of it that it explains: what samples of the
/// host's call stacks show (`while the host runs …`), or else a known cause, by what it may save.
fn cause_of_idle(first: &Finding, idle_ns: f64) -> Option<(String, f64)> {
    let share = |time: Figure| (time.value / idle_ns.max(1.0)).min(1.0);
    let is_about_idle = Rule::named(&first.rule).is_some_and(|rule| !rule.idle.is_empty());
    match (&first.saving.observed, &first.cause, first.saving.time_ns) {
        (Some(observed), ..) => Some((format!("while {}", observed.doing), share(observed.time_ns))),
        (None, Some(_), Some(time)) if is_about_idle => Some((within_sentence(&first.title), share(time))),
        _ => None,
    }
}

/// A title within a sentence: an article at its beginning is small, a name is not.
fn within_sentence(title: &str) -> String {
    match title.split_once(' ') {
        Some((article @ ("A" | "An" | "The"), rest)) => format!("{} {rest}", article.to_lowercase()),
        _ => title.to_owned(),
    }
}

/// What the device does in the account of copies: it has fills, too.
fn what_copies(job: &Profile) -> &'static str {
    let fills = job.time_of_sets().value;
    let copies = job.copies.iter().filter(|copy| !copy.wait());
    let copies = total(copies.map(|copy| job.time_of_copies(copy).value));
    match fills / (fills + copies).max(1.0) {
        share if share >= ALL => "Fills of memory (memset)",
        share if share > 1.0 - ALL => "Copies and fills of memory (memset)",
        _ => "Copies",
    }
}

/// Says what the host does meanwhile.
fn while_in(cause: IdleCause) -> &'static str {
    match cause {
        IdleCause::Launching => "while the host is in launch calls",
        IdleCause::Allocating => "while the host allocates or frees memory",
        IdleCause::Transferring => "while the host waits for copies",
        IdleCause::Synchronising => "while the host returns from synchronisation",
        IdleCause::Loading => "while the host loads code",
        IdleCause::Capturing => "while the host captures graphs",
        IdleCause::OtherCalls => "while the host is in other driver calls",
        IdleCause::HostCode => "while the host runs the program's own code",
        IdleCause::Unrecorded => "the reason was not recorded",
    }
}

/// Duration of a step, or of the whole.
fn lasted(part: &Part<'_>) -> Option<String> {
    let accounts = part.job.accounts();
    // If nothing was timed, the kernels' time is unknown and left out.
    let busy = accounts.kernels.value + accounts.collectives.value;
    let kernels = |what: &str, by: f64, mark: &str| match busy > 0.0 {
        true => format!("; {what} take {}{mark}", units::time(busy / by)),
        false => String::new(),
    };
    // (An imported trace has the time of each kernel.)
    let mark = if accounts.kernels.interval().is_none() { "ᵐ" } else { "ᵖ" };
    let step_ns = part.job.step_ns().zip(part.steps);
    if let Some((iterations, (step_ns, steps))) = part.iterations.zip(step_ns) {
        let intervals = &iterations.duration;
        return Some(format!(
            "A step takes {}{} (mean of {}; launch intervals: p10 {}, p90 {}ᵐ){}.",
            units::time(step_ns.value),
            figures::mark(step_ns.provenance()),
            units::count(step_ns.samples),
            units::time(intervals.p10_ns),
            units::time(intervals.p90_ns),
            kernels("its kernels", steps, mark)
        ));
    }
    (accounts.span_ns > 0.0).then(|| {
        let none =
            if part.is_without_steps { " No launch sequence repeats, so there are no steps." } else { "" };
        if let Some(all) = together(part.job) {
            let kernels = kernels("the kernels of all", 1.0, " together");
            return format!("{}{kernels}.{none}", longest_span(part, &all));
        }
        let of = if part.is_window { "Of the window, from" } else { "From" };
        format!(
            "{of} its first to its last work {} pass{}.{none}",
            units::time(accounts.span_ns),
            kernels("kernels", 1.0, "")
        )
    })
}

/// How long the one of several ranks or GPUs takes that takes longest: the accounts are sums.
fn longest_span(part: &Part<'_>, all: &str) -> String {
    let spans = part.job.activities.iter().map(|activity| activity.accounts.span_ns);
    let within = if part.is_window { " within the window" } else { "" };
    let span = units::time(spans.fold(0.0, f64::max));
    format!("The longest of {all} takes {span} from its first to its last work{within}")
}

/// The first finding whose saving is worth a word.
fn worth(advice: &Advice) -> Option<&Finding> {
    advice.findings.iter().find(|finding| {
        let saves = finding.saving.of_job.is_some_and(|share| share.bounds().1 >= LEAST);
        saves || finding.rule == COSTLY_LINE
    })
}

/// Names the change, and what it saves.
fn remedy(part: &Part<'_>, finding: &Finding) -> String {
    let change = &finding.remedy;
    let Some(saving) = finding.saving.time_ns else { return format!("→ {change}.") };
    let (saving, each) = match part.steps {
        Some(steps) => (saving.scaled(1.0 / steps), " a step"),
        _ => (saving, ""),
    };
    let of_all = together(part.job).filter(|_| part.steps.is_none());
    let of_all = of_all.map_or_else(String::new, |all| format!(" of {all} together"));
    let (low, high) = saving.bounds();
    // A change draws from an account that the bars show. Some on the host's side save busy time,
    // too.
    let (account, is_idle) = drawn_from(part.job, finding);
    let account = account / part.steps.unwrap_or(1.0);
    let saves_idle_time = is_idle && saving.value <= account * (1.0 + 1e-9);
    let high = if saves_idle_time || !is_idle { high.min(account.max(saving.value)) } else { high };
    let low = low.min(high);
    let kind = if saves_idle_time { " of idle time" } else { "" };
    let amount = if low > LEAST * high {
        format!("{} to {}", units::time(low), units::time(high))
    } else {
        format!("up to {}", units::time(high))
    };
    format!("→ {change}: saves {amount}{each}{kind}{of_all}.")
}

/// The time of the account that a finding draws from, nanoseconds of all devices, and whether it is
/// idle time; without limit where it is the kernels'.
fn drawn_from(job: &Profile, finding: &Finding) -> (f64, bool) {
    let accounts = job.accounts();
    match Rule::named(&finding.rule) {
        Some(rule) if !rule.idle.is_empty() => (accounts.idle_ns().value, true),
        Some(rule) if rule.slug == "slow-rank" && accounts.waiting.value > 0.0 => {
            (accounts.waiting.value, false)
        }
        _ => (f64::INFINITY, false),
    }
}

/// What there is none of in a session without launches, and why: `No …`.
pub fn what_is_missing(profile: &Profile) -> String {
    let recorder = &profile.recorder;
    let is_unreadable =
        profile.processes.is_empty() && recorder.problems.iter().any(|problem| problem.contains(".rec: "));
    match recorder.lost() {
        0 if is_unreadable => "known launch: the records cannot be read".to_owned(),
        0 => "kernel was launched".to_owned(),
        lost => format!("known launch: {} lost", units::counted(lost, "record was", "records were")),
    }
}

/// A share with its interval, where that says anything.
fn share_of(time: Figure, span: f64) -> String {
    let (low, high) = time.bounds();
    let [value, low, high] = [time.value, low, high].map(|end| end / span);
    if high - low < 0.02 { units::share(value) } else { units::share_between(value, low, high.min(1.0)) }
}

#[cfg(test)]
mod tests {
    use super::{Part, how_much, next_look, remedy, sentence, sentences, within_sentence};
    use apex_advice::{
        Advice, Finding, KernelFinding, KnownCause, Observed, Options, Scope, Severity, advise,
    };
    use apex_profile::names::Owner;
    use apex_profile::{
        Accounts, Activity, Basis, Device, Distribution, Figure, GpuTime, IdleCause, Kernel, KernelCounts,
        Launches, Process, Profile, SessionCode,
    };

    /// A kernel that takes so much GPU time.
    fn taking(owner: Owner, total_ns: f64) -> Kernel {
        let gpu = GpuTime {
            each: Distribution::default(),
            deviation_ns: None,
            basis: Basis::Busy,
            queued_samples: 0,
            busy_samples: 1,
            idle_samples: 0,
            correction_ns: 0.0,
            total_ns: Figure::measured(total_ns),
        };
        let mut kernel = Kernel { short_name: "product".into(), gpu: Some(gpu), ..Kernel::default() };
        kernel.traits.owner = owner;
        kernel
    }

    #[test]
    fn a_busy_kernel_without_a_finding_can_be_looked_into() {
        let look = |kernels: Vec<Kernel>, busy_ns: f64, code: Option<SessionCode>| {
            let accounts =
                Accounts { span_ns: 1e9, kernels: Figure::measured(busy_ns), ..Accounts::default() };
            let mut job = Profile {
                activities: vec![Activity { accounts, ..Activity::default() }],
                kernels,
                code,
                ..Profile::default()
            };
            job.totals.gpu_time_ns = Some(Figure::measured(busy_ns));
            next_look(&Part {
                job: &job,
                name: "the time".into(),
                iterations: None,
                steps: None,
                is_window: false,
                is_without_steps: false,
                kernels: None,
                machine: None,
            })
        };
        let own = || vec![taking(Owner::Own, 0.8e9)];
        let both = look(own(), 0.9e9, None).expect("a sentence");
        assert!(both.contains("`product`: `apex run --code`") && both.contains("--device cpu"), "{both}");
        let counts = look(own(), 0.9e9, Some(SessionCode::default())).expect("a sentence");
        assert!(!counts.contains("--code") && counts.contains("--device cpu"), "{counts}");
        // The CPU device does not execute Triton's machine code.
        let in_python = vec![taking(Owner::Own, 0.8e9), taking(Owner::PyTorch, 1e3)];
        let code = look(in_python, 0.9e9, None).expect("a sentence");
        assert!(code.contains("--code") && !code.contains("--device cpu"), "{code}");
        // An idle device, a library's kernel, and one that takes a small part.
        assert_eq!(look(own(), 0.7e9, None), None);
        assert_eq!(look(vec![taking(Owner::CuBlas, 0.8e9)], 0.9e9, None), None);
        assert_eq!(look(vec![taking(Owner::Own, 0.4e9)], 0.9e9, None), None);
    }

    #[test]
    fn bodies_that_nobody_counts_make_the_launches_a_lower_bound() {
        let graph = |opaque, launches| apex_profile::Graph { opaque, launches, ..Default::default() };
        let of = |graphs: Vec<apex_profile::Graph>| {
            let mut profile = Profile { graphs, ..Profile::default() };
            profile.totals.launches = 3;
            super::launches(&profile)
        };
        assert_eq!(of(vec![graph(0, 5), graph(2, 0)]), "3 launches", "the graph was not launched");
        assert_eq!(of(vec![graph(0, 5), graph(2, 1)]), "at least 3 launches");
    }

    #[test]
    fn a_small_part_of_the_work_is_said_to_be_one() {
        let of = |instructions: u64| {
            let mut counts = KernelCounts { launches: 1, ..KernelCounts::default() };
            counts.sums.warp_instructions[apex_counts::InstructionClass::Single as usize] = instructions;
            let launches = Launches { calls: 1, ..Launches::default() };
            Kernel { counts: Some(counts), launches, ..Kernel::default() }
        };
        let job = Profile { kernels: vec![of(10), of(90)], ..Profile::default() };
        assert_eq!(how_much(&job, 0), ", which has 10% of the executed instructions");
        assert_eq!(how_much(&job, 1), "");
        let uncounted = Profile { kernels: vec![Kernel::default()], ..Profile::default() };
        assert_eq!(how_much(&uncounted, 0), "");
    }

    fn whole(job: &Profile) -> Part<'_> {
        Part {
            job,
            name: "each step".into(),
            iterations: None,
            steps: None,
            is_window: false,
            is_without_steps: false,
            kernels: None,
            machine: None,
        }
    }

    #[test]
    fn a_wait_names_both_ranks_and_says_what_its_shares_are_of() {
        let activity = |process: usize, ordinal: u32, waiting: f64| Activity {
            process,
            device: Some(process),
            ordinal: Some(ordinal),
            span_ns: 1e9,
            accounts: Accounts {
                span_ns: 1e9,
                kernels: Figure::measured(1e9 - waiting),
                waiting: Figure::measured(waiting),
                ..Accounts::default()
            },
            ..Activity::default()
        };
        let ranked = |pid, rank| Process { pid, rank: Some(rank), ..Process::default() };
        // The rank that started first, and came first into the list, is rank 1 on GPU 1.
        let mut job = Profile {
            devices: vec![Device::default(), Device::default()],
            processes: vec![ranked(651, 1), ranked(650, 0)],
            activities: vec![activity(0, 1, 0.0), activity(1, 0, 0.36e9)],
            ..Profile::default()
        };
        let said = |job: &Profile| sentence(&whole(job), &Advice::default());
        assert_eq!(
            said(&job),
            "Rank 0 (process 650, GPU 0) waits for rank 1 (process 651, GPU 1) in collectives for 36% of its time, on \
                average over 2 ranks 18% of each step."
        );
        // Two ranks that do not wait: it is unknown which of them is late.
        job.processes.push(ranked(652, 2));
        job.activities.push(activity(2, 2, 0.0));
        assert!(
            said(&job).contains("waits for a slower rank in collectives for 36% of its time"),
            "{}",
            said(&job)
        );
        // A rank alone, of a job whose other ranks were not selected.
        job.activities.remove(0);
        job.activities.truncate(1);
        assert!(said(&job).ends_with("for 36% of its time."), "{}", said(&job));
    }

    #[test]
    fn the_span_of_several_is_that_of_the_longest_and_savings_are_of_all() {
        let mut job = second(Accounts { kernels: Figure::measured(0.5e9), ..Accounts::default() });
        job.processes = vec![Process { rank: Some(0), ..Process::default() }; 2];
        let mut other = Activity { process: 1, device: Some(1), ..job.activities[0].clone() };
        (other.span_ns, other.accounts.span_ns) = (3e9, 3e9);
        job.activities.push(other);
        let advice = advice_of(vec![found("APEX-H00", "x", "Slow", Some(0.4e9))]);
        let said = sentences(&whole(&job), &advice).join(" ");
        let span = "The longest of 2 ranks takes 3.00 s from its first to its last work; the kernels of all take \
            1.00 s together.";
        assert!(said.contains(span), "{said}");
        assert!(said.ends_with(" of 2 ranks together."), "{said}");
    }

    /// A second of a step with these accounts.
    fn second(accounts: Accounts) -> Profile {
        let activity =
            Activity { span_ns: 1e9, accounts: Accounts { span_ns: 1e9, ..accounts }, ..Activity::default() };
        Profile {
            devices: vec![Device { name: "NVIDIA H200".into(), ..Device::default() }],
            activities: vec![activity],
            ..Profile::default()
        }
    }

    fn found(rule: &str, slug: &str, title: &str, saves_ns: Option<f64>) -> Finding {
        let mut finding = Finding::default();
        (finding.rule, finding.slug, finding.title) = (rule.into(), slug.into(), title.into());
        (finding.severity, finding.remedy) = (Severity::Medium, "Change it".into());
        finding.saving.of_job = saves_ns.map(|time| Figure::measured(time / 1e9));
        finding.saving.time_ns = saves_ns.map(Figure::measured);
        finding
    }

    fn advice_of(findings: Vec<Finding>) -> Advice {
        Advice { findings, ..Advice::default() }
    }

    #[test]
    fn a_cause_is_given_its_own_part_of_the_idle_time() {
        let idle = [(IdleCause::HostCode, Figure::measured(0.96e9))].into();
        let job = second(Accounts { kernels: Figure::measured(0.04e9), idle, ..Accounts::default() });
        let in_fsync = |time_ns| {
            let mut finding = found("APEX-L96", "known-host-work", "A file is synced", Some(time_ns));
            let doing = "the host is in `fsync`, called from log.py:34 step".to_owned();
            finding.saving.observed = Some(Observed { time_ns: Figure::measured(time_ns), doing });
            finding
        };
        let launching = || {
            let mut finding = found("APEX-T24", "launch-bound", "Launch-bound", Some(0.6e9));
            finding.within_time = Some("the largest part of it at log.py:30 step (70%)".into());
            finding
        };
        let said = |findings| sentence(&whole(&job), &advice_of(findings));
        assert_eq!(
            said(vec![in_fsync(0.28e9), launching()]),
            "The GPU is idle 96% of each step: 28% of each step while the host is in `fsync`, called from log.py:34 step; \
                for the rest the host launches kernels too slowly."
        );
        assert_eq!(
            said(vec![in_fsync(0.9e9), launching()]),
            "The GPU is idle 96% of each step: while the host is in `fsync`, called from log.py:34 step."
        );
        assert_eq!(
            said(vec![launching()]),
            "The GPU is idle 96% of each step: the host launches kernels too slowly; the largest part of it at log.py:30 \
                step (70%)."
        );
    }

    #[test]
    fn a_known_cause_without_samples_is_the_reason_that_its_remedy_belongs_to() {
        let idle = [(IdleCause::Launching, Figure::measured(0.8e9))].into();
        let job = second(Accounts { kernels: Figure::measured(0.2e9), idle, ..Accounts::default() });
        let cause = KnownCause { id: "host-function-each-step".into(), source: String::new() };
        let mut known =
            found("APEX-L96", "known-host-work", "The stream calls a function of the host", Some(0.72e9));
        known.cause = Some(cause);
        let launching = found("APEX-T24", "launch-bound", "Launch-bound", Some(0.72e9));
        assert_eq!(
            sentence(&whole(&job), &advice_of(vec![known, launching])),
            "The GPU is idle 80% of each step: the stream calls a function of the host."
        );
        assert_eq!(within_sentence("NumPy computes on the host"), "NumPy computes on the host");
    }

    #[test]
    fn what_takes_most_of_a_step_is_said_before_idle_time() {
        let idle = || [(IdleCause::HostCode, Figure::measured(0.35e9))].into();
        let copying = |copies| {
            let kernels = Figure::measured(0.65e9 - copies);
            let job = second(Accounts {
                copies: Figure::measured(copies),
                kernels,
                idle: idle(),
                ..Accounts::default()
            });
            sentence(&whole(&job), &Advice::default())
        };
        assert_eq!(
            copying(0.57e9),
            "Copies take 57% of each step, without overlapping kernels; for 35% of each step the GPU is idle."
        );
        assert!(copying(0.3e9).starts_with("The GPU is idle 35% of each step"), "{}", copying(0.3e9));
    }

    #[test]
    fn fills_are_no_copies() {
        let mut job = second(Accounts { copies: Figure::measured(0.9e9), ..Accounts::default() });
        let set = apex_profile::Call {
            name: "cuMemsetD8Async".into(),
            class: Some(apex_trace::layout::CallClass::Set),
            bytes: 1 << 30,
            count: 1,
            ..apex_profile::Call::default()
        };
        job.calls = vec![set];
        assert_eq!(
            sentence(&whole(&job), &Advice::default()),
            "Fills of memory (memset) take 90% of each step, without overlapping kernels."
        );
    }

    #[test]
    fn a_fault_of_unknown_saving_in_the_longest_kernel_is_the_change_to_make() {
        let mut job = second(Accounts { kernels: Figure::measured(0.99e9), ..Accounts::default() });
        job.kernels = vec![taking(Owner::Own, 0.9e9), taking(Owner::Own, 0.09e9)];
        job.totals.gpu_time_ns = Some(Figure::measured(0.99e9));
        let about = |kernel| {
            let mut finding =
                found("APEX-L80", "local-memory-size", "Local memory exceeds the L1 cache", None);
            finding.scope = Scope::Kernel;
            finding.kernels = vec![KernelFinding { kernel, ..KernelFinding::default() }];
            finding
        };
        let said = |finding| sentences(&whole(&job), &advice_of(vec![finding])).pop().expect("a sentence");
        assert_eq!(said(about(0)), "→ Change it.");
        assert!(said(about(1)).starts_with("No rule names a change."), "{}", said(about(1)));
    }

    #[test]
    fn a_remedy_promises_no_more_idle_time_than_the_bars_show() {
        let idle = Figure::predicted(0.6e9, (0.5e9, 0.8e9));
        let accounts = Accounts {
            span_ns: 1e9,
            kernels: Figure::measured(0.4e9),
            idle: [(IdleCause::HostCode, idle)].into(),
            ..Accounts::default()
        };
        let activity = Activity {
            launches: 1_000,
            span_ns: 1e9,
            idle_share: Some(Figure::predicted(0.6, (0.5, 0.8))),
            idle_by: [(IdleCause::HostCode, 0.6e9)].into(),
            accounts,
            ..Activity::default()
        };
        let mut job = Profile {
            devices: vec![Device { name: "NVIDIA H200".into(), ..Device::default() }],
            activities: vec![activity],
            ..Profile::default()
        };
        job.totals.span_ns = 1e9;
        let advice = advise(&job, &Options::default());
        let finding =
            advice.findings.iter().find(|finding| finding.slug == "host-bound").expect("it is idle");
        assert!(finding.saving.time_ns.expect("known").bounds().1 > 0.6e9, "{:?}", finding.saving);
        let said = remedy(&whole(&job), finding);
        assert!(said.contains(" 600 ms of idle time."), "{said}");
    }
}
