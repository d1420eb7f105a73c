//! Which part of a session is shown and judged: one set of options for `report`, `advise` and
//! `diff`, one way from a session to what they show.
//!
//! Windows and ranks decide what is read at all ([`Selection`]); phases and kernels decide what of
//! that is shown. What a filter leaves empty is an error that says what there is.

use crate::loaded::Loaded;
use crate::{output, units};
use anyhow::bail;
use apex_advice::{Advice, Options};
use apex_predict::Models;
use apex_profile::{
    Accounts, Iterations, Kernel, KernelPattern, PhaseKind, Profile, Selection, origin_ns, ranks,
};
use apex_text::verdict::{Chosen, Part};
use apex_trace::Session;
use clap::ValueEnum;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

/// Names that an error lists.
const NAMED: usize = 8;

/// Their heading in `--help`; other options keep theirs.
const FILTERS: &str = "Filters";

/// The part of a session that is wanted.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Filters {
    /// Phase of the run [default: the steady state of a GPU's run, where launches repeat, unless a
    /// window is given]
    #[arg(help_heading = FILTERS, long, value_enum, env = "APEX_PHASE")]
    phase: Option<Phase>,
    /// Only kernels of this name (`*` stands for any characters), or in whose name an expression
    /// is found: regex:EXPRESSION. Can be repeated
    #[arg(help_heading = FILTERS, long = "kernel", value_name = "NAME", env = "APEX_KERNEL")]
    kernels: Vec<KernelPattern>,
    /// Only calls that began between these times since the session's start, such as 1.5s..2s or
    /// 200ms..
    #[arg(help_heading = FILTERS, long, value_name = "A..B", value_parser = units::parse_window, env = "APEX_WINDOW")]
    window: Option<Range<u64>>,
    /// Only these processes, such as 0,2: those that launched kernels are numbered from 0 by their
    /// identifiers, which can be given too
    #[arg(help_heading = FILTERS, long = "rank", value_name = "RANK", value_delimiter = ',', env = "APEX_RANK")]
    ranks: Vec<u32>,
}

/// A part of a program's run, found from the repetition of its launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Phase {
    /// Before the first iteration
    Startup,
    /// First iterations, slower than later ones
    Warmup,
    /// Iterations
    Steady,
    /// The whole run
    All,
}

/// The filters that made a document what it is.
#[derive(Serialize)]
pub struct Applied<'a> {
    /// The phase; `null` for all of the run, or of the window.
    phase: Option<PhaseKind>,
    /// Names and expressions, as they were given.
    kernels: Vec<&'a str>,
    window_ns: Option<Window>,
    /// Ranks, or identifiers of processes, as they were given.
    ranks: &'a [u32],
}

/// A span of a session's time, nanoseconds after its start.
#[derive(Serialize)]
struct Window {
    from: u64,
    /// `null`: the session's end.
    to: Option<u64>,
}

/// What of a session is shown.
pub struct Shown<'a> {
    /// The run, or the window and ranks of it.
    pub whole: &'a Profile,
    /// Of that the phase.
    pub job: Cow<'a, Profile>,
    /// Which phase; `None` for all of it.
    pub phase: Option<PhaseKind>,
    /// The phase that was asked for, where the run has none.
    lacking: Option<PhaseKind>,
    /// The kernels that are meant; `None` for all of them.
    pub kernels: Option<BTreeSet<usize>>,
    /// The job, without launches of other kernels.
    of_kernels: Option<Profile>,
    filters: &'a Filters,
}

impl Filters {
    /// Filters that are given in words, as options would have them.
    ///
    /// # Errors
    /// Says which word makes no sense.
    pub fn of_words(
        phase: Option<&str>,
        kernels: &[String],
        window: Option<&str>,
        ranks: Option<&str>,
    ) -> Result<Self, String> {
        let phase = phase.map(|phase| {
            let known =
                <Phase as ValueEnum>::value_variants().iter().filter_map(ValueEnum::to_possible_value);
            let known: Vec<_> = known.map(|value| value.get_name().to_owned()).collect();
            <Phase as ValueEnum>::from_str(phase, false)
                .map_err(|_| format!("phase: use {}", known.join(", ")))
        });
        let kernels = kernels.iter().map(|kernel| kernel.parse().map_err(|error| format!("kernel: {error}")));
        let window =
            window.map(|window| units::parse_window(window).map_err(|error| format!("window: {error}")));
        let ranks = ranks.into_iter().flat_map(|ranks| ranks.split(','));
        let ranks =
            ranks.map(|rank| rank.parse().map_err(|_| "rank: use numbers with commas between".to_owned()));
        Ok(Self {
            phase: phase.transpose()?,
            kernels: kernels.collect::<Result<_, _>>()?,
            window: window.transpose()?,
            ranks: ranks.collect::<Result<_, _>>()?,
        })
    }

    /// What of a session is to be read.
    ///
    /// # Errors
    /// If it has no such rank.
    pub fn selection(&self, session: &Session) -> anyhow::Result<Selection> {
        let known = ranks(session);
        let process = |&rank: &u32| {
            let place = known.get(rank as usize).copied();
            place.or_else(|| known.contains(&rank).then_some(rank)).ok_or(rank)
        };
        let wanted: Result<BTreeSet<u32>, u32> = self.ranks.iter().map(process).collect();
        let processes = match wanted {
            Ok(wanted) if wanted.is_empty() => None,
            Ok(wanted) => Some(wanted),
            Err(rank) => bail!("--rank {rank}: {}", which_ranks(&known)),
        };
        Ok(Selection { window: self.window.clone(), processes })
    }

    /// Refuses a window in which nothing began.
    ///
    /// # Errors
    /// Says what the session's time is.
    pub fn check_window(&self, session: &Session, profile: &Profile) -> anyhow::Result<()> {
        let Some(window) = self.window.clone() else { return Ok(()) };
        if profile.totals.kernels_run() > 0 || !profile.calls.is_empty() || !profile.activities.is_empty() {
            return Ok(());
        }
        let origin = origin_ns(session);
        let time =
            |process: &apex_trace::Process, ticks| process.clock.monotonic_ns(ticks).saturating_sub(origin);
        let spans = session.processes.iter().filter_map(|process| {
            let (first, last) = process.span?;
            Some((time(process, first), time(process, last)))
        });
        let (first, last) = spans.fold((u64::MAX, 0), |(a, b), (first, last)| (a.min(first), b.max(last)));
        if first > last {
            return Ok(());
        }
        bail!(
            "--window {}: no call began in it; those of the session lie between {} and {}",
            shown_window(&window),
            units::time(first as f64),
            units::time(last as f64)
        )
    }

    /// What is shown of a session that was read with these filters.
    ///
    /// # Errors
    /// If no kernel of it is meant.
    pub fn shown<'a>(&'a self, loaded: &'a Loaded) -> anyhow::Result<Shown<'a>> {
        Ok(self.shown_alike(&[loaded])?.remove(0))
    }

    /// What is shown of sessions that are compared: the same phase of each.
    ///
    /// # Errors
    /// If no kernel of any of them is meant.
    pub fn shown_alike<'a>(&'a self, loaded: &[&'a Loaded]) -> anyhow::Result<Vec<Shown<'a>>> {
        let shown = self.parts(loaded)?;
        shown.iter().filter_map(Shown::lacks).for_each(output::remark);
        Ok(shown)
    }

    /// As [`Self::shown_alike`], and nothing is said on stderr.
    ///
    /// # Errors
    /// If no kernel of any of them is meant.
    pub fn parts<'a>(&'a self, loaded: &[&'a Loaded]) -> anyhow::Result<Vec<Shown<'a>>> {
        let steady = |loaded: &&Loaded| {
            // Times of the CPU device say nothing about a GPU, and its counts are of all launches.
            loaded.profile.has_phase(PhaseKind::Steady) && !loaded.profile.on_cpu_device()
        };
        let phase = match self.phase {
            None => (self.window.is_none() && loaded.iter().all(steady)).then_some(PhaseKind::Steady),
            Some(Phase::Startup) => Some(PhaseKind::Startup),
            Some(Phase::Warmup) => Some(PhaseKind::Warmup),
            Some(Phase::Steady) => Some(PhaseKind::Steady),
            Some(Phase::All) => None,
        };
        let mut shown: Vec<Shown<'a>> =
            loaded.iter().map(|loaded| self.of_phase(&loaded.profile, phase)).collect();
        if !self.kernels.is_empty() {
            shown.iter_mut().for_each(|shown| shown.keep(shown.job.kernels_named(&self.kernels)));
            let launched = |shown: &Shown<'_>| shown.whole.kernels.iter().any(|kernel| kernel.launches.any());
            let none = |shown: &Shown<'_>| shown.kernels.as_ref().is_some_and(BTreeSet::is_empty);
            if shown.iter().all(none) && shown.iter().any(launched) {
                bail!("{}", self.no_kernel(&shown[0]));
            }
        }
        Ok(shown)
    }

    /// The profile of a phase; of the whole run if `None`, or where it has no such phase.
    fn of_phase<'a>(&'a self, whole: &'a Profile, phase: Option<PhaseKind>) -> Shown<'a> {
        let in_phase = phase.and_then(|kind| whole.in_phase(kind));
        let lacking = phase.filter(|_| in_phase.is_none());
        let (phase, job) = match in_phase {
            Some(profile) => (phase, Cow::Owned(profile)),
            None => (None, Cow::Borrowed(whole)),
        };
        Shown { whole, job, phase, lacking, kernels: None, of_kernels: None, filters: self }
    }

    /// Why no kernel is left, and what there is.
    fn no_kernel(&self, shown: &Shown<'_>) -> String {
        let wanted: Vec<String> =
            self.kernels.iter().map(|pattern| format!("`{}`", pattern.text())).collect();
        let wanted = wanted.join(" or ");
        if !shown.whole.kernels_named(&self.kernels).is_empty() {
            let phase = shown.phase.map_or("this part of the run", PhaseKind::name);
            return format!(
                "no kernel that matches {wanted} was launched in the {phase}: --phase all shows the others"
            );
        }
        let part =
            self.kernels.iter().map(|pattern| pattern.text().trim_start_matches("regex:").to_lowercase());
        let parts: Vec<String> = part.collect();
        let is_near = |name: &str| parts.iter().any(|part| name.to_lowercase().contains(part.as_str()));
        let mut seen = BTreeSet::new();
        let launched = shown.job.kernels.iter().filter(|kernel| kernel.launches.any());
        let mut names: Vec<&Kernel> = launched.filter(|kernel| seen.insert(&kernel.short_name)).collect();
        names.sort_by_key(|kernel| !is_near(&kernel.name) && !is_near(&kernel.short_name));
        let listed: Vec<String> =
            names.iter().take(NAMED).map(|kernel| format!("`{}`", kernel.short_name)).collect();
        let more = match names.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("no kernel matches {wanted}; the session has {}{more}", listed.join(", "))
    }
}

fn which_ranks(known: &[u32]) -> String {
    match known {
        [] => "no process of the session launched a kernel".to_owned(),
        [one] => format!("the session has one rank, 0 (process {one})"),
        many => {
            let pids: Vec<String> = many.iter().map(ToString::to_string).collect();
            format!("the session has the ranks 0 to {} (processes {})", many.len() - 1, pids.join(", "))
        }
    }
}

fn shown_window(window: &Range<u64>) -> String {
    let end = |ns: u64| units::time(ns as f64);
    let to = if window.end == u64::MAX { String::new() } else { end(window.end) };
    format!("{}..{to}", end(window.start))
}

impl<'a> Shown<'a> {
    /// Leaves launches of these kernels alone.
    fn keep(&mut self, kernels: BTreeSet<usize>) {
        self.of_kernels = Some(self.job.of_kernels(&kernels));
        self.kernels = Some(kernels);
    }

    /// What figures and tables show.
    pub fn profile(&self) -> &Profile {
        self.of_kernels.as_ref().unwrap_or(&self.job)
    }

    /// The rules' judgement, without these rules. Names that no rule has are remarked upon.
    pub fn advise(&self, suppress: &[String]) -> Advice {
        let advice = apex_advice::advise(
            &self.job,
            &Options {
                suppress: suppress.iter().cloned().collect(),
                models: Some(Models::shipped()),
                kernels: self.kernels.clone(),
            },
        );
        for name in &advice.unknown_suppressions {
            output::remark(format!("--suppress {name}: there is no such rule"));
        }
        advice
    }

    /// Which phase is missing, in words; `None` where none is.
    pub fn lacks(&self) -> Option<String> {
        let phase = self.lacking?.name();
        Some(format!(
            "this run has no {phase}; all of it is shown: --phase finds phases from launches that repeat"
        ))
    }

    /// Whether a window of the run is shown.
    pub fn is_window(&self) -> bool {
        self.filters.window.is_some()
    }

    /// The filters, for a document.
    pub fn applied(&self) -> Applied<'a> {
        let Filters { kernels, window, ranks, .. } = self.filters;
        let to = |end| if end == u64::MAX { None } else { Some(end) };
        Applied {
            phase: self.phase,
            kernels: kernels.iter().map(KernelPattern::text).collect(),
            window_ns: window.as_ref().map(|window| Window { from: window.start, to: to(window.end) }),
            ranks,
        }
    }

    /// The filters in words; `None` without any.
    pub fn described(&self) -> Option<String> {
        let Filters { kernels, window, ranks, .. } = self.filters;
        let names = |pattern: &KernelPattern| format!("`{}`", pattern.text());
        let kernels: Vec<String> = kernels.iter().map(names).collect();
        let ranks: Vec<String> = ranks.iter().map(ToString::to_string).collect();
        let parts = [
            (!ranks.is_empty()).then(|| format!("rank {}", ranks.join(", "))),
            window.as_ref().map(|window| format!("the window {}", shown_window(window))),
            (!kernels.is_empty()).then(|| {
                format!("kernels {} (the accounts above are those of all kernels)", kernels.join(", "))
            }),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| format!("Shown: {}.", parts.join(" · ")))
    }

    /// What a verdict is about.
    pub fn part(&self) -> Part<'_> {
        let name = match self.phase {
            Some(PhaseKind::Steady) => "each step".into(),
            Some(phase) => format!("the {}", phase.name()),
            None if self.is_window() => "the window".into(),
            None => "the time".into(),
        };
        let has_no_phase = self.whole.activities.iter().all(|activity| activity.iterations.is_none());
        let chosen = |kernels| Chosen { kernels, profile: self.profile() };
        Part {
            job: &self.job,
            name,
            iterations: self.iterations(),
            steps: self.steps(),
            is_window: self.is_window(),
            is_without_steps: has_no_phase && !self.is_window(),
            kernels: self.kernels.as_ref().map(chosen),
        }
    }

    /// Where the time of the devices went.
    pub fn accounts(&self) -> Accounts {
        self.job.accounts()
    }

    /// The iterations of the device with the most of them, where the steady state is shown.
    pub fn iterations(&self) -> Option<&Iterations> {
        let steady = self.phase == Some(PhaseKind::Steady);
        let of = self.job.activities.iter().filter_map(|activity| activity.iterations.as_ref());
        of.max_by_key(|iterations| iterations.count).filter(|_| steady)
    }

    /// Steps of all devices.
    pub fn steps(&self) -> Option<f64> {
        self.iterations()?;
        let steps = self.job.activities.iter().filter_map(apex_profile::Activity::steps);
        Some(steps.sum()).filter(|steps| *steps > 0.0)
    }
}
