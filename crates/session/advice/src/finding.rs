//! The finding of a rule: evidence, one change, its saving with an interval, and how to verify it.

use cuda_launch::Dim3;
use serde::Serialize;

use apex_profile::{Figure, total};

/// The importance of a finding in general; its cost in this job is in its [`Saving`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing.
    #[default]
    Info,
    /// Costs a little, or only sometimes.
    Low,
    /// Usually costs.
    Medium,
    /// Nearly always costs.
    High,
}

/// The subject of a finding, and so the time that it can save.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Kernels: it can save time that the device is busy.
    Kernel,
    /// The host's side: it can save time that the device is idle.
    #[default]
    Host,
}

/// A step on a scale of three.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// A hint.
    #[default]
    Low,
    /// Likely.
    Medium,
    /// Nearly sure.
    High,
}

/// The certainty that the change saves as much as claimed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Confidence {
    /// The level.
    pub level: Level,
    /// The reason.
    pub reason: String,
}

/// Unit of a value in evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A number of things.
    Count,
    /// A share, 0 to 1.
    Share,
    /// Nanoseconds.
    Nanoseconds,
    /// Bytes.
    Bytes,
}

/// The direction in which a value should move.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "way", content = "towards")]
pub enum Direction {
    /// Up, towards the value.
    #[serde(rename = "increase")]
    IncreaseTowards(f64),
    /// Down, towards the value.
    #[serde(rename = "decrease")]
    DecreaseTowards(f64),
}

/// One value that speaks for a finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evidence {
    /// The name: "threads per block".
    pub name: String,
    /// The value.
    pub figure: Figure,
    /// Its unit.
    pub unit: Unit,
    /// The direction in which it should move, if it is known.
    pub direction: Option<Direction>,
    /// A comparison, if it is no goal: "shorter than its launch call of 3.94 µs".
    pub compared: Option<String>,
}

impl Evidence {
    /// A value whose direction is not told.
    pub fn new(name: impl Into<String>, figure: Figure, unit: Unit) -> Self {
        Self { name: name.into(), figure, unit, direction: None, compared: None }
    }

    /// The value should rise towards `goal`. No time should: a kernel that takes too little is
    /// [compared](Self::compared_as) with what it is too short for.
    pub fn increase_towards(mut self, goal: f64) -> Self {
        debug_assert_ne!(self.unit, Unit::Nanoseconds, "{} should not rise", self.name);
        self.direction = Some(Direction::IncreaseTowards(goal));
        self
    }

    /// The value is no fault in itself, but in comparison.
    pub fn compared_as(mut self, comparison: impl Into<String>) -> Self {
        self.compared = Some(comparison.into());
        self
    }

    /// The value should fall towards `goal`.
    pub fn decrease_towards(mut self, goal: f64) -> Self {
        self.direction = Some(Direction::DecreaseTowards(goal));
        self
    }
}

/// The saving of a change. The intervals reach from the part that is sure to be saved, often
/// nothing, to the most that can be. Shares are of run time saved: 0.5 is a factor of 2.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Saving {
    /// Share of the kernels' own time.
    pub of_kernel: Option<Figure>,
    /// Share of the job's time.
    pub of_job: Option<Figure>,
    /// Time of the job, nanoseconds.
    pub time_ns: Option<Figure>,
    /// The reason why the time is unknown, if it is.
    pub unknown_because: Option<String>,
    /// Time that the change saves outside of the rule's scope: busy time of a rule about the host,
    /// idle time of a rule about kernels. [`crate::advise`] adds it to the others.
    #[serde(skip)]
    pub(crate) beyond: Option<Figure>,
    /// What call stacks show of the host in the time that it saves. Such a saving is sure to be
    /// about its function, where others infer a cause from calls.
    #[serde(skip)]
    pub observed: Option<Observed>,
}

/// The host's activity in idle time of the device, as its call stacks show it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Idle time with this activity, nanoseconds of all devices. A change saves at most this much
    /// of it.
    pub time_ns: Figure,
    /// The activity with its place, after "while": "the host is in `f`, called from train.py:8
    /// step".
    pub doing: String,
}

impl Saving {
    /// Returns the speed-up of a job if this share is saved; `None` if it is too large (above 100)
    /// to be meaningful.
    pub fn faster(share: f64) -> Option<f64> {
        Some(1.0 / (1.0 - share)).filter(|factor| (0.0..=100.0).contains(factor))
    }
}

/// One kernel configuration that has the fault.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KernelFinding {
    /// Index into [`apex_profile::Profile::kernels`].
    pub kernel: usize,
    /// Its short name.
    pub name: String,
    /// Its configuration, as `<<<(128, 1, 1), (100, 1, 1), 0>>>`.
    pub configuration: String,
    /// Launches that ran, by graphs too.
    pub launches: u64,
    /// Values that speak for it.
    pub evidence: Vec<Evidence>,
    /// The change for this kernel.
    pub change: String,
    /// The saving of the change.
    pub saving: Saving,
    /// The configuration that the change names, where it names one.
    pub to: Option<Configuration>,
    /// The models' prediction for the change; `None` if the change is not named, the kernel was not
    /// timed, or the models do not know the device.
    pub what_if: Option<WhatIf>,
}

/// Grid and block of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Configuration {
    /// Blocks in x, y, z.
    pub grid: Dim3,
    /// Threads of a block in x, y, z.
    pub block: Dim3,
}

/// The models' prediction for a kernel in another configuration, from its measured time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WhatIf {
    /// The configuration.
    pub configuration: Configuration,
    /// Duration of the kernel there.
    pub duration_ns: Figure,
    /// Share of the measured duration that this saves; below 0 where it costs.
    pub saves: Figure,
}

/// A cause of the table of known causes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KnownCause {
    /// Its identifier: `pytorch-fp32-attention`.
    pub id: String,
    /// The place of its documentation.
    pub source: String,
}

/// A place in the program's source, with the statement that stands there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Quoted {
    /// Path of the file, as the interpreter or the debug information names it.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The function.
    pub function: String,
    /// The statement that the line is part of, on one line, in at most 100 characters.
    pub text: String,
}

/// The finding of one rule in a profile: one finding, however many kernels have the fault.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Finding {
    /// The rule's identifier, `APEX-L01`.
    pub rule: String,
    /// The rule's name, `block-not-warp-multiple`.
    pub slug: String,
    /// The fault, in a few words.
    pub title: String,
    /// The known cause that the finding is about; `None` for what a rule finds by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<KnownCause>,
    /// The importance in general.
    pub severity: Severity,
    /// The subject.
    pub scope: Scope,
    /// The rule whose finding contains this one: its saving is part of that one's, and does not add
    /// to it.
    pub within: Option<String>,
    /// Names of rules whose findings about the same time this one explains.
    #[serde(skip)]
    pub(crate) explains: Vec<String>,
    /// Identifiers of the rules whose general findings this one leads: it explains so much of their
    /// time that it is said first (see [`crate::advise`]).
    #[serde(skip)]
    pub(crate) leads: Vec<String>,
    /// The rule of the general finding whose time this one partly explains without leading it. The
    /// saving is then part of that finding's saving.
    #[serde(skip)]
    pub(crate) part_of: Option<String>,
    /// The most that a general finding claims, nanoseconds: its time without the part in which the
    /// host is in functions of findings that lead it; `None` where call stacks show no such part.
    #[serde(skip)]
    pub(crate) apart_ns: Option<f64>,
    /// What a general finding's summary says of the causes or the lines within its time.
    #[serde(skip)]
    pub within_time: Option<String>,
    /// A sentence about this profile, with values.
    pub summary: String,
    /// The line of the program that it is about, if its source text is known: the one that its
    /// kernels take most time for, or the first that the summary names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Quoted>,
    /// Values that speak for it, of the job.
    pub evidence: Vec<Evidence>,
    /// The kernels that have the fault, the costliest first; empty where it is not about kernels.
    pub kernels: Vec<KernelFinding>,
    /// The one change to make.
    pub change: String,
    /// The change without its details, as a sentence without a full stop.
    pub remedy: String,
    /// The saving, after capping (see [`crate::advise`]).
    pub saving: Saving,
    /// The certainty of the saving.
    pub confidence: Confidence,
    /// A command that shows whether the change helped.
    pub verify: String,
}

/// A change without its details: what comes before the first `; ` or `. ` that stands outside of
/// parentheses, with a capital letter.
pub(crate) fn in_short(change: &str) -> String {
    let mut depth = 0;
    let end = change.char_indices().find(|&(at, letter)| {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        depth <= 0 && matches!(letter, ';' | '.') && change[at + 1..].starts_with(' ')
    });
    let short = end.map_or(change, |(at, _)| &change[..at]).trim_end_matches('.');
    // A file or a function has the name that it has.
    if short.split(' ').next().is_some_and(|word| word.contains(['.', '/', '_', '`'])) {
        return short.to_owned();
    }
    let mut letters = short.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Evidence of how many blocks a grid has, which should be at least one for each SM.
pub(crate) const BLOCKS: &str = "blocks";

impl Finding {
    /// Share of the counted work that its kernels do together. `shares` has each kernel's share
    /// ([`apex_profile::Profile::counted_shares`]).
    pub fn counted_share(&self, shares: &[f64]) -> f64 {
        total(self.kernels.iter().map(|kernel| shares[kernel.kernel]))
    }

    /// As [`Self::counted_share`], but a kernel that leaves SMs without a block counts as if these
    /// worked, too: it takes that much longer than its work shows.
    pub fn counted_weight(&self, shares: &[f64]) -> f64 {
        let slower = |kernel: &KernelFinding| {
            let blocks = kernel.evidence.iter().find(|evidence| evidence.name == BLOCKS);
            blocks.map_or(1.0, |blocks| match blocks.direction {
                Some(Direction::IncreaseTowards(sms)) => sms / blocks.figure.value.max(1.0),
                _ => 1.0,
            })
        };
        total(self.kernels.iter().map(|kernel| shares[kernel.kernel] * slower(kernel)))
    }
}

#[cfg(test)]
mod tests {
    use super::in_short;

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
            ("page_ranks.cu:33: copy it at once", "page_ranks.cu:33: copy it at once"),
        ];
        for (change, short) in cases {
            assert_eq!(in_short(change), short);
        }
    }
}
