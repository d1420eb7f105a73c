//! The verdict: where the time of a session or of a part of it went, what to change, and what that
//! saves.

use std::collections::BTreeSet;

use apex_advice::rules::Rule;
use apex_advice::{Advice, Finding, Scope, Severity};
use apex_profile::names::OwnerKind;
use apex_profile::{
    Accounts, Figure, IdleCause, Iterations, Kernel, Process, Profile, SaturatingSum as _, total,
};

use crate::{figures, units};

/// A GPU that is idle for less is busy.
const IDLE: f64 = 0.25;
/// What takes less is not worth a word.
pub const LEAST: f64 = 0.02;
/// A kernel with less of the counted work is no verdict on a program.
const COUNTED: f64 = 0.03;
/// Unknown time above this share leaves nothing to say.
const UNKNOWN: f64 = 0.5;

/// What a verdict is about.
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
}

/// Kernels of a part.
#[derive(Clone, Copy, Debug)]
pub struct Chosen<'a> {
    /// Their places in the profile.
    pub kernels: &'a BTreeSet<usize>,
    /// The part without launches of other kernels.
    pub profile: &'a Profile,
}

/// The verdict: what the time went into, how long it took, and what to change; a sentence each, of
/// which the last two may be missing.
pub fn sentences(part: &Part<'_>, advice: &Advice) -> Vec<String> {
    let first = match part.job.on_cpu_device() {
        // What is wrong comes before what is slow.
        true => counted_first(part.job, advice).filter(|_| part.job.defects.is_empty()),
        false => worth(advice),
    };
    let lasted = if part.kernels.is_some() || part.job.on_cpu_device() { None } else { lasted(part) };
    let remedy = first.map(|first| remedy(part, first)).or_else(|| next_look(part));
    [Some(sentence(part, advice)), lasted, remedy].into_iter().flatten().collect()
}

/// Where no rule names a change and one of the program's own kernels keeps the GPU busy: how to see
/// what limits it.
fn next_look(part: &Part<'_>) -> Option<String> {
    let accounts = part.job.accounts();
    let is_busy = accounts.kernels.value >= (1.0 - IDLE) * accounts.span_ns;
    if part.job.on_cpu_device() || part.kernels.is_some() || !is_busy {
        return None;
    }
    let (kernel, share) = longest(part.job)?;
    let is_own = kernel.traits.owner.kind() == OwnerKind::Own;
    if !is_own || share < 0.5 {
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
    match &part.kernels {
        Some(kernels) => of_kernels(part, kernels),
        None if part.job.on_cpu_device() => on_cpu(part, counted_first(part.job, advice)),
        None => time_went(part, advice),
    }
}

/// What of the launches and of the GPU time is the kernels' that were asked for.
fn of_kernels(part: &Part<'_>, chosen: &Chosen<'_>) -> String {
    let (all, Chosen { kernels, profile }) = (part.job, *chosen);
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

/// Says which part of the counted work a kernel does that does less than half of it.
fn how_much(job: &Profile, kernel: usize) -> String {
    match job.counted_shares().get(kernel) {
        Some(&share) if share > 0.0 && share < 0.5 => {
            format!(", which does {} of the counted work", units::share(share))
        }
        _ => String::new(),
    }
}

/// Says that the rules found nothing that matters, and names the kernel that does most of the work.
fn without_fault(job: &Profile) -> String {
    let most = job.kernels.iter().zip(job.counted_shares()).max_by(|(_, a), (_, b)| a.total_cmp(b));
    match most.filter(|(_, share)| *share > 0.0) {
        Some((kernel, share)) => format!(
            "The rules found nothing in `{}`, which does {} of the counted work.",
            kernel.short_name,
            units::share(share)
        ),
        None => format!(
            "{} on the CPU device: the rules found nothing; the times are not a GPU's.",
            units::counted(job.totals.kernels_run(), "launch", "launches")
        ),
    }
}

/// What the time went into.
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
    if let Some((process, waits)) = waiting(part.job).filter(|(_, waits)| *waits > IDLE / 2.0) {
        let pid = process.pid;
        let who =
            process.rank.map_or(format!("Process {pid}"), |rank| format!("Rank {rank} (process {pid})"));
        return format!(
            "{who} waits for a slower rank in collectives for {} of {of_what}.",
            units::share(waits)
        );
    }
    let idle = accounts.idle_ns();
    if of_span(idle) >= IDLE {
        return format!(
            "The GPU is idle {} of {of_what}: {}.",
            share_of(idle, span),
            why_idle(part, &accounts, advice)
        );
    }
    let busy = |what: &str, time: Figure| format!("{what} take {} of {of_what}", share_of(time, span));
    if of_span(accounts.collectives) > IDLE {
        return format!("{}, without overlapping computation.", busy("Collectives", accounts.collectives));
    }
    if of_span(accounts.copies) > IDLE {
        return format!("{}, without overlapping kernels.", busy("Copies", accounts.copies));
    }
    // Of kernels in graphs no times are known, and the longest of the others may be next to nothing.
    let top =
        longest(part.job).filter(|(_, share)| *share >= LEAST).map_or(String::new(), |(kernel, share)| {
            format!("; `{}` takes {} of its kernels' time", kernel.short_name, units::share(share))
        });
    format!(
        "The GPU is busy {} of {of_what}{top}.",
        units::share(of_span(accounts.kernels) + of_span(accounts.copies))
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
fn why_idle(part: &Part<'_>, accounts: &Accounts, advice: &Advice) -> String {
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
        return format!(
            "{} without interruption, {} after the first launch{between}, {most}",
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
            "frequent-synchronisation" => return "the host synchronises in every iteration".into(),
            "host-bound" => return "it waits for host code".into(),
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
        IdleCause::Allocating => "while the host allocates or frees memory",
        IdleCause::Transferring => "while the host waits for copies",
        IdleCause::Synchronising => "while the host returns from synchronisation",
        IdleCause::Loading => "while the host loads code",
        IdleCause::Capturing => "while the host captures graphs",
        IdleCause::OtherCalls => "while the host is in other driver calls",
        IdleCause::HostCode => "while the host runs the program's own code",
    }
}

/// How long a step takes, or the whole.
fn lasted(part: &Part<'_>) -> Option<String> {
    let accounts = part.job.accounts();
    // If nothing was timed, the kernels' time is unknown and left out.
    let busy = accounts.kernels.value + accounts.collectives.value;
    let kernels = |what: &str, by: f64, mark: &str| match busy > 0.0 {
        true => format!("; {what} take {}{mark}", units::time(busy / by)),
        false => String::new(),
    };
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
            kernels("its kernels", steps, "ᵖ")
        ));
    }
    (accounts.span_ns > 0.0).then(|| {
        let none =
            if part.is_without_steps { " No launch sequence repeats, so there are no steps." } else { "" };
        let of = if part.is_window { "Of the window, from" } else { "From" };
        format!(
            "{of} its first to its last work {} pass{}.{none}",
            units::time(accounts.span_ns),
            kernels("kernels", 1.0, "")
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
fn remedy(part: &Part<'_>, finding: &Finding) -> String {
    let change = in_short(&finding.change);
    let Some(saving) = finding.saving.time_ns else { return format!("→ {change}.") };
    let (saving, each) = match part.steps {
        Some(steps) => (saving.scaled(1.0 / steps), " a step"),
        _ => (saving, ""),
    };
    let (low, high) = saving.bounds();
    let saves_idle_time = Rule::named(&finding.rule).is_some_and(|rule| !rule.idle.is_empty());
    let kind = if saves_idle_time { " of idle time" } else { "" };
    let amount = if low > LEAST * high {
        format!("{} to {}", units::time(low), units::time(high))
    } else {
        format!("up to {}", units::time(high))
    };
    format!("→ {change}: saves {amount}{each}{kind}.")
}

/// A change without its details: what comes before the first `; ` or `. ` that stands outside of
/// parentheses.
fn in_short(change: &str) -> &str {
    let mut depth = 0;
    let end = change.char_indices().find(|&(at, letter)| {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        depth <= 0 && matches!(letter, ';' | '.') && change[at + 1..].starts_with(' ')
    });
    end.map_or(change, |(at, _)| &change[..at]).trim_end_matches('.')
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
    use super::{Part, how_much, in_short, next_look};
    use apex_profile::names::Owner;
    use apex_profile::{
        Accounts, Activity, Basis, Distribution, Figure, GpuTime, Kernel, KernelCounts, Launches, Profile,
        SessionCode,
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
    fn a_small_part_of_the_work_is_said_to_be_one() {
        let of = |instructions: u64| {
            let warp_instructions = [("f32".to_owned(), instructions)].into();
            let counts = KernelCounts { launches: 1, warp_instructions, ..KernelCounts::default() };
            let launches = Launches { calls: 1, ..Launches::default() };
            Kernel { counts: Some(counts), launches, ..Kernel::default() }
        };
        let job = Profile { kernels: vec![of(10), of(90)], ..Profile::default() };
        assert_eq!(how_much(&job, 0), ", which does 10% of the counted work");
        assert_eq!(how_much(&job, 1), "");
        let uncounted = Profile { kernels: vec![Kernel::default()], ..Profile::default() };
        assert_eq!(how_much(&uncounted, 0), "");
    }

    #[test]
    fn a_change_in_short_ends_before_its_details() {
        let cases = [
            ("Launch less often: capture a graph.", "Launch less often: capture a graph"),
            ("Allocate once, or use a pool. Without a change, …", "Allocate once, or use a pool"),
            ("Use a larger block (a loop; in Triton BLOCK).", "Use a larger block (a loop; in Triton BLOCK)"),
            (
                "Avoid .contiguous() and std::vector in the loop.",
                "Avoid .contiguous() and std::vector in the loop",
            ),
            ("Convert once; weights too", "Convert once"),
        ];
        for (change, short) in cases {
            assert_eq!(in_short(change), short);
        }
    }
}
