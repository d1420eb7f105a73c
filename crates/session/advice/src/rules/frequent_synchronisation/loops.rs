//! Waits that one line makes again and again in a step: a loop that handles elements one by one.

use super::super::{known, loops, on_the_clock};
use apex_profile::{Frame, Kernel, Profile, Site, StackCount, total};

/// Minimum number of waits from one line in a step for them to be those of a loop.
const EACH_STEP: f64 = 8.0;
/// Minimum share of the waits that come from that line.
const SHARE: f64 = 0.5;

/// A loop whose elements the host waits for one by one.
pub(super) struct Loop {
    /// The observation, as the end of a sentence.
    pub seen: String,
    /// The change to make, if a known cause explains the loop.
    pub known: Option<String>,
    /// Whether one step alone has many of them. Where a step is one round of the loop, a known
    /// cause alone shows the loop.
    pub is_in_step: bool,
    /// Time on the clock of the kernels that its function launches, nanoseconds.
    pub kernels_ns: f64,
}

impl Loop {
    /// The loop that most of these waits come from.
    pub fn of(profile: &Profile, stacks: &[StackCount], waits: u64) -> Option<Self> {
        let (line, share) = main_line(profile, stacks)?;
        let count = share * waits as f64;
        let each = profile.steps().map(|steps| count / steps).filter(|each| *each >= EACH_STEP);
        let known = known::loop_at(profile, line, count);
        let around = loops::around_line(profile, line);
        let around = around.map_or_else(String::new, |around| format!(", in {around},"));
        let times = each.map(|each| format!("{line}{around} waits {each:.0} times in each step"));
        let meaning = known.as_ref().map(|(meaning, _)| meaning.trim_end_matches('.').to_owned());
        let seen = match (times, meaning) {
            (Some(times), Some(meaning)) => format!("{times}: {meaning}"),
            (Some(times), None) => format!("{times}, as a loop over elements does"),
            (None, Some(meaning)) => format!("{line}: {meaning}"),
            (None, None) => return None,
        };
        let kernels_ns = kernels_from(profile, line) * on_the_clock(profile);
        Some(Self { seen, known: known.map(|(_, remedy)| remedy), is_in_step: each.is_some(), kernels_ns })
    }
}

/// The line of the user's that most of these come from, and its share.
fn main_line<'p>(profile: &'p Profile, stacks: &[StackCount]) -> Option<(&'p Frame, f64)> {
    let sites = profile.sites(stacks);
    let first = sites.first()?;
    let share = first.share.or_else(|| (sites.len() == 1).then_some(1.0))?;
    match first.site {
        Site::Line(line) | Site::Through { python: line, .. } if !line.is_of_library() => {
            Some((line, share)).filter(|(line, share)| *share >= SHARE && launches_from(profile, line))
        }
        _ => None,
    }
}

/// Whether kernels that run here come from the function of a line. Stacks of calls are those of the
/// whole run, of which a step is a part.
fn launches_from(profile: &Profile, line: &Frame) -> bool {
    let stacks = profile.kernels.iter().filter(|kernel| kernel.launches.any()).map(|kernel| &kernel.stacks);
    let graphs = profile.graphs.iter().filter(|graph| graph.launches > 0).map(|graph| &graph.stacks);
    stacks.chain(graphs).any(|counts| share_from(profile, counts, line) > 0.0)
}

/// GPU time of the kernels that the function of a line launches, nanoseconds.
fn kernels_from(profile: &Profile, line: &Frame) -> f64 {
    let time = |kernel: &Kernel| Some(kernel.gpu_total_ns()? * share_from(profile, &kernel.stacks, line));
    total(profile.kernels.iter().filter_map(time))
}

/// Share of the sampled stacks in which the function of a line is the innermost of the program's;
/// equal shares where none was sampled.
fn share_from(profile: &Profile, counts: &[StackCount], line: &Frame) -> f64 {
    let is_same = |of: &Frame| (&of.file, &of.function) == (&line.file, &line.function);
    let sites = profile.sites(counts);
    let from = sites
        .iter()
        .filter(|site| matches!(site.site, Site::Line(of) | Site::Through { python: of, .. } if is_same(of)));
    total(from.map(|site| site.share.unwrap_or(1.0 / sites.len() as f64)))
}
