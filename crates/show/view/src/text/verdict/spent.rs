//! The sentence of where the time went: waiting, copies, idle time and its reason, or kernels.

use apex_ordered::Gather;
use std::collections::BTreeSet;

use apex_advice::rules::Rule;
use apex_advice::{Advice, Finding};
use apex_profile::{Accounts, Activity, Figure, IdleCause, Profile, total, units};

use super::{IDLE, LEAST, Part, capitalised, longest, together, what_is_missing};

/// A cause with this share of the idle time stands for all of it.
const ALL: f64 = 0.9;
/// Unknown time above this share leaves nothing to say.
const UNKNOWN: f64 = 0.5;

/// The shares of the time of a part.
struct Spent<'a> {
    part: &'a Part<'a>,
    advice: &'a Advice,
    accounts: Accounts,
    span_ns: f64,
}

/// Says what the time went into.
pub(super) fn time_went(part: &Part<'_>, advice: &Advice) -> String {
    if part.job.device_is_unknown() {
        return "The session does not name the device: it is unknown whether its times are a GPU's."
            .to_owned();
    }
    if part.job.activities.is_empty() {
        return format!("No {}.", what_is_missing(part.job));
    }
    let accounts = part.job.accounts();
    let spent = Spent { part, advice, span_ns: accounts.span_ns.max(1.0), accounts };
    let told = spent.is_unknown().or_else(|| spent.on_a_slower_rank()).or_else(|| spent.mostly_copying());
    let told = told.or_else(|| spent.idly()).or_else(|| spent.in_collectives());
    told.or_else(|| spent.copying()).unwrap_or_else(|| spent.in_kernels())
}

impl Spent<'_> {
    fn share(&self, time: Figure) -> f64 {
        time.value / self.span_ns
    }

    fn idle_ns(&self) -> Figure {
        self.accounts.idle_ns()
    }

    /// `what` takes this time of the part, without a full stop.
    fn takes(&self, what: &str, time: Figure) -> String {
        format!("{what} take {} of {}", share_of(time, self.span_ns), self.part.name)
    }

    /// Too little was timed to say anything.
    fn is_unknown(&self) -> Option<String> {
        let unknown = self.accounts.unknown_share();
        (unknown > UNKNOWN).then(|| {
            format!(
                "GPU activity is unknown for {} of {}: too few launches were timed (use --timing sampled or all).",
                units::share(unknown),
                self.part.name
            )
        })
    }

    /// A process waits for others.
    fn on_a_slower_rank(&self) -> Option<String> {
        let job = self.part.job;
        let (waiting, waits) = waiting(job).filter(|(_, waits)| *waits > IDLE / 2.0)?;
        let (who, whom) = (job.user_in_words(waiting), straggler(job, waiting));
        // The bars and the savings are of all devices together.
        let average = together(job).map_or_else(String::new, |all| {
            let share = units::share(self.share(self.accounts.waiting));
            format!(", on average over {all} {share} of {}", self.part.name)
        });
        Some(format!(
            "{} waits for {whom} in collectives for {} of its time{average}.",
            capitalised(&who),
            units::share(waits)
        ))
    }

    /// Copies take more than anything else that no kernel overlaps.
    fn mostly_copying(&self) -> Option<String> {
        let idle = self.idle_ns();
        if self.share(self.accounts.copies) <= IDLE.max(self.share(idle)) {
            return None;
        }
        let are_idle = if gpus(self.part.job) > 1 { "the GPUs are" } else { "the GPU is" };
        let beside = match self.share(idle) >= IDLE {
            true => {
                format!("; for {} of {} {are_idle} idle", share_of(idle, self.span_ns), self.part.name)
            }
            false => String::new(),
        };
        Some(self.copies(&beside))
    }

    /// Devices are idle.
    fn idly(&self) -> Option<String> {
        let idle = self.idle_ns();
        if self.share(idle) < IDLE {
            return None;
        }
        // A finding may be about one of several devices, whose idle share differs.
        let (who, average) = match gpus(self.part.job) {
            0 | 1 => ("The GPU is".to_owned(), ""),
            all => (format!("The {all} GPUs are"), " on average"),
        };
        let why = why_idle(self.part, &self.accounts, self.advice);
        Some(format!("{who} idle {} of {}{average}: {why}.", share_of(idle, self.span_ns), self.part.name))
    }

    fn in_collectives(&self) -> Option<String> {
        let collectives = self.accounts.collectives;
        (self.share(collectives) > IDLE)
            .then(|| format!("{}, without overlapping computation.", self.takes("Collectives", collectives)))
    }

    fn copying(&self) -> Option<String> {
        (self.share(self.accounts.copies) > IDLE).then(|| self.copies(""))
    }

    fn copies(&self, beside: &str) -> String {
        let take = self.takes(what_copies(self.part.job), self.accounts.copies);
        format!("{take}, without overlapping kernels{beside}.")
    }

    fn in_kernels(&self) -> String {
        // Of kernels in graphs no times are known, and the longest of the others may be next to
        // nothing.
        let top = longest(self.part.job).filter(|(_, share)| *share >= LEAST);
        let top = top.map_or(String::new(), |(kernel, share)| {
            format!("; `{}` takes {} of its kernels' time", kernel.short_name, units::share(share))
        });
        let busy = units::share(self.share(self.accounts.kernels) + self.share(self.accounts.copies));
        format!("The GPU is busy {busy} of {}{top}.", self.part.name)
    }
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

/// The explanation of idle time where no finding names the cause: a pause that takes most of it,
/// what a general finding says, else what the host does for most of it. Also what lies within that.
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
    used.map(|activity| activity.device).gathered::<BTreeSet<_>>().len()
}

/// The cause of the idle time by a finding, and the share that it explains: what samples of the
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
pub(super) fn within_sentence(title: &str) -> String {
    match title.split_once(' ') {
        Some((article @ ("A" | "An" | "The"), rest)) => format!("{} {rest}", article.to_lowercase()),
        _ => title.to_owned(),
    }
}

/// The name of the account of copies, which may also have fills.
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

/// A share with its interval, where that says anything.
fn share_of(time: Figure, span: f64) -> String {
    let (low, high) = time.bounds();
    let [value, low, high] = [time.value, low, high].map(|end| end / span);
    if high - low < 0.02 { units::share(value) } else { units::share_between(value, low, high.min(1.0)) }
}
