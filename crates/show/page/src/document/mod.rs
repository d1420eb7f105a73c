//! The document of the page.
//!
//! Times are nanoseconds, shares are between 0 and 1, unknown values are `null`. Lists that grow
//! with the session have a limit; a member beside each list counts the omitted entries.

mod accounts;
mod advice;
mod figure;
mod flows;
mod geometry;
mod kernels;
mod limits;
mod lines;
mod machine;
mod machine_over_time;
mod memory;
mod places;
mod what_if;

use apex_advice::Advice;
use apex_conventions::documents::{self, Envelope};
use apex_machine::Machine;
use apex_predict_session::explore::Tried;
use apex_profile::{Iterations, PhaseKind, Profile};
use apex_trace::meta::{Exit, Meta};
use apex_view::{Loaded, PHASE_MENU, PHASE_OPTION, Shown};
use figure::{Figure, text};
pub use limits::Limits;
pub use lines::KernelLines;
use serde::Serialize;
pub use what_if::Answer;

/// Bytes of a sentence; foreign names are cut shorter.
const SENTENCE: usize = 1_000;
/// Sentences of each sort.
const SENTENCES: usize = 50;

/// Content of a page.
#[derive(Clone, Debug)]
pub struct Source<'a> {
    /// Folder of the session, as text.
    pub session: &'a str,
    /// The program's run.
    pub meta: Option<&'a Meta>,
    /// The run, or the window and the ranks of it that are shown.
    pub whole: &'a Profile,
    /// Phase of it that is judged.
    pub job: &'a Profile,
    /// Kernels of it that are shown.
    pub selected: &'a Profile,
    /// Phase of `job`; `None` for all.
    pub phase: Option<PhaseKind>,
    /// Steps that `job` holds, of all devices; `None` where there are none.
    pub steps: Option<f64>,
    /// The iterations of the steady state, where `job` is that.
    pub iterations: Option<&'a Iterations>,
    /// Advice of the rules.
    pub advice: &'a Advice,
    /// The verdict, a sentence each.
    pub verdict: Vec<String>,
    /// Further sentences of a report: filters, what was checked, circumstances.
    pub notes: Vec<String>,
    /// Gain of `--fast`, in words.
    pub fast: Vec<String>,
    /// State of the machine in the time of `whole`.
    pub machine: &'a Machine,
    /// Beginning of the session's time, on the clock of `machine`.
    pub origin_ns: u64,
    /// Kernels of `selected` with the block sizes that were tried; empty where a server answers for
    /// any.
    pub tried: &'a [Tried],
}

/// The document.
#[derive(Debug, Serialize)]
pub struct Document<'a> {
    session: Session,
    verdict: Vec<String>,
    notes: Vec<String>,
    key: Key,
    accounts: accounts::Job,
    devices: accounts::Devices,
    advice: advice::Judgement,
    kernels: kernels::Kernels,
    /// Kernels in other block sizes; empty where a server answers for any.
    what_if: Vec<what_if::TriedKernel>,
    /// Their lines, as the CPU device counted them; empty where a server answers for any.
    lines: Vec<lines::LinesOfKernel>,
    places: places::Places,
    ranges: places::Ranges,
    /// Steps whose launches could run beside each other, the one with most time first.
    flows: Vec<flows::Flow>,
    memory: memory::MemoryUse<'a>,
    fast: Vec<String>,
    machine: machine::Machine,
}

/// The program's run, and its end.
#[derive(Debug, Serialize)]
struct Session {
    name: String,
    command: Option<String>,
    folder: Option<String>,
    /// Nanoseconds since 1970.
    started_ns: Option<u64>,
    wall_ns: f64,
    on_cpu_device: bool,
    /// Kernels that were timed: `off`, `sampled`, `all`.
    timing: Option<String>,
    /// End of the program; `null` while it runs, or where that is not known.
    exit: Option<Exit>,
    problems: Vec<String>,
}

/// The figures at the head of the page.
#[derive(Debug, Serialize)]
struct Key {
    /// Share of time in which kernels ran.
    gpu_busy: Option<Figure>,
    /// Kernels that ran.
    launches: u64,
    /// Share of the time that all findings together would save.
    saving_of_job: Option<Figure>,
    /// Share of the host's time that recording took.
    overhead_share: Option<Figure>,
    lost_records: u64,
    /// Duration of a step, on average.
    step_ns: Option<Figure>,
    /// Intervals from the first launch of a step to that of the next.
    step: Option<figure::Spread>,
    /// Launches of a step.
    step_launches: Option<f64>,
}

impl<'a> Source<'a> {
    /// Makes the document of a session that has this name on the page.
    pub fn of(session: &'a str, loaded: &'a Loaded, shown: &'a Shown<'_>, advice: &'a Advice) -> Self {
        Self {
            session,
            meta: loaded.session.meta.as_ref(),
            whole: shown.whole,
            job: &shown.job,
            selected: shown.profile(),
            phase: shown.phase,
            steps: shown.steps(),
            iterations: shown.iterations(),
            advice,
            verdict: apex_view::text::verdict::sentences(&shown.part(), advice),
            notes: notes(shown, advice, PHASE_OPTION),
            fast: apex_view::text::fast::sentences(shown.profile()),
            machine: &loaded.machine,
            origin_ns: apex_profile::origin_ns(&loaded.session),
            tried: &[],
        }
    }

    /// The same for a reader who has the dashboard's menus instead of options.
    pub fn served(session: &'a str, loaded: &'a Loaded, shown: &'a Shown<'_>, advice: &'a Advice) -> Self {
        Self { notes: notes(shown, advice, PHASE_MENU), ..Self::of(session, loaded, shown, advice) }
    }
}

/// Sentences on what was selected, what was checked, and how the rest is shown.
fn notes(shown: &Shown<'_>, advice: &Advice, phases: &str) -> Vec<String> {
    shown.described().into_iter().chain(shown.notes(advice, phases)).collect()
}

impl<'a> Document<'a> {
    /// The document of a session, with lists of at most these lengths.
    pub fn of(source: &Source<'a>, limits: &Limits) -> Self {
        Self {
            session: Session::of(source),
            verdict: sentences(&source.verdict),
            notes: sentences(&source.notes),
            key: Key::of(source),
            accounts: accounts::Job::of(source),
            devices: accounts::Devices::of(source.whole, limits.devices),
            advice: advice::Judgement::of(source, limits.kernels_of_finding),
            kernels: kernels::Kernels::of(source, limits.kernels),
            what_if: source.tried.iter().take(limits.tried).map(what_if::TriedKernel::of).collect(),
            lines: lines::LinesOfKernel::of_all(source.selected, limits.kernels_with_lines, limits.lines()),
            places: places::Places::of(source.selected, limits),
            ranges: places::Ranges::of(source.whole, limits.ranges),
            flows: flows::Flow::of_all(source.selected, limits.flows),
            memory: memory::MemoryUse::of(source.selected, limits.memory),
            fast: sentences(&source.fast),
            machine: machine::Machine::of(source, limits),
        }
    }
}

impl Session {
    fn of(source: &Source<'_>) -> Self {
        let meta = source.meta;
        Self {
            name: text(source.session, figure::NAME),
            command: meta.map(|meta| text(&meta.command.join(" "), SENTENCE)),
            folder: meta.map(|meta| text(&meta.cwd, figure::NAME)),
            started_ns: meta.map(|meta| meta.started_real_ns),
            wall_ns: source.whole.totals.wall_ns,
            on_cpu_device: source.whole.on_cpu_device(),
            timing: meta.map(|meta| text(&meta.timing, figure::NAME)),
            exit: meta.and_then(|meta| meta.exit),
            problems: sentences(&source.whole.recorder.problems),
        }
    }
}

impl Key {
    fn of(source: &Source<'_>) -> Self {
        let verdict = &source.advice.verdict;
        // Times of the CPU device say nothing about a GPU.
        let of_gpu = !source.whole.on_cpu_device();
        Self {
            gpu_busy: source.job.totals.gpu_busy.filter(|_| of_gpu).map(Figure::of),
            launches: source.selected.totals.kernels_run(),
            saving_of_job: verdict.saving_of_job.map(Figure::of),
            overhead_share: verdict.overhead_share.map(Figure::of),
            lost_records: verdict.lost_records,
            step_ns: source.iterations.and_then(|_| source.job.step_ns()).map(Figure::of),
            step: source.iterations.map(|iterations| figure::Spread::of(&iterations.duration)),
            step_launches: source.iterations.map(|iterations| iterations.launches),
        }
    }
}

/// A document of this kind, which consists of plain data, as JSON.
pub fn json(document: documents::Document, content: &impl Serialize) -> String {
    serde_json::to_string(&Envelope::of(document, content)).expect("the content is plain data")
}

/// The first sentences, printable.
fn sentences(all: &[String]) -> Vec<String> {
    all.iter().take(SENTENCES).map(|sentence| text(sentence, SENTENCE)).collect()
}
