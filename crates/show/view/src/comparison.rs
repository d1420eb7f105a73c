//! Runs before and after a change: the document of `apex diff`, and its first sentence.

use crate::{Applied, Loaded, Shown};
use apex_advice::{Advice, Change, Comparison, CountChanges, Run, compare};
use apex_energy::{Energy, EnergyChange, Rates};
use apex_ordered::Gather;
use apex_profile::units;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The content of [`DIFF`](apex_conventions::documents::DIFF).
#[derive(Serialize)]
pub struct DiffDocument<'a> {
    before: Vec<String>,
    after: Vec<String>,
    /// What was run on either side, each command once; sessions without a record of it left out.
    commands: [Vec<String>; 2],
    filters: Applied<'a>,
    /// Why promises are not judged; absent where they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    unjudged: Option<String>,
    /// The first line of the page.
    verdict: String,
    /// The energy of an iteration or of a run on both sides; absent where it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    energy: Option<EnergyChange>,
    comparison: &'a Comparison,
}

/// The energy of an iteration or of a run before and after, where all sessions know it.
pub fn energy_change(sessions: &[Loaded], before: usize) -> Option<EnergyChange> {
    let of = |sessions: &[Loaded]| -> Option<Vec<Energy>> {
        sessions.iter().map(|loaded| loaded.energy(Rates::default())).collect()
    };
    let (before, after) = sessions.split_at(before.min(sessions.len()));
    EnergyChange::of(&of(before)?, &of(after)?)
}

impl<'a> DiffDocument<'a> {
    /// The document about what is shown of these sessions; `None` where there are none.
    pub fn of(
        sessions: &[Loaded],
        shown: &'a [Shown<'_>],
        before: &[PathBuf],
        after: &[PathBuf],
        comparison: &'a Comparison,
    ) -> Option<Self> {
        let names = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect();
        Some(Self {
            before: names(before),
            after: names(after),
            commands: commands(sessions, before.len()),
            filters: shown.first()?.applied(),
            unjudged: different_programs(sessions, before.len()),
            verdict: verdict(comparison),
            energy: energy_change(sessions, before.len()),
            comparison,
        })
    }
}

/// Share of the kernels' time that kernels of both sides have, on one side at least, where both
/// are of one program. (A change that fuses kernels leaves few names, but the long ones.)
const COMMON: f64 = 0.3;

/// What the first `before` sessions ran, and what the others did: each command once. Imported
/// traces tell no command.
pub fn commands(sessions: &[Loaded], before: usize) -> [Vec<String>; 2] {
    let of = |sessions: &[Loaded]| {
        let recorded = sessions.iter().filter(|loaded| !loaded.is_imported());
        let all: BTreeSet<String> = recorded.filter_map(Loaded::command).gathered();
        all.into_iter().collect()
    };
    let (before, after) = sessions.split_at(before.min(sessions.len()));
    [of(before), of(after)]
}

/// `The commands differ: … → ….`; `None` where both sides ran the same, or one is unknown.
pub fn different_commands([before, after]: &[Vec<String>; 2]) -> Option<String> {
    let is_known = !before.is_empty() && !after.is_empty();
    let listed = |commands: &[String]| {
        commands.iter().map(|command| format!("`{command}`")).collect::<Vec<_>>().join(", ")
    };
    (is_known && before != after)
        .then(|| format!("The commands differ: {} → {}.", listed(before), listed(after)))
}

/// Says that the sides ran different programs, whose promises are therefore not judged; `None`
/// where a program is on both sides, or where one is unknown. Programs of imported traces, which
/// have only the names of files, are told by their kernels.
pub fn different_programs(sessions: &[Loaded], before: usize) -> Option<String> {
    if sessions.iter().any(Loaded::is_imported) {
        return different_kernels(sessions, before);
    }
    let of = |sessions: &[Loaded]| -> BTreeSet<String> {
        let commands = sessions.iter().filter_map(|loaded| Some(&loaded.session.meta.as_ref()?.command));
        commands.filter_map(|command| program(command)).collect()
    };
    let (before, after) = sessions.split_at(before.min(sessions.len()));
    let (before, after) = (of(before), of(after));
    let is_known = !before.is_empty() && !after.is_empty();
    (is_known && before.is_disjoint(&after)).then(|| {
        let listed = |programs: &BTreeSet<String>| programs.iter().cloned().collect::<Vec<_>>().join(", ");
        format!(
            "Findings are not followed and promises are not judged: {} and {} are different programs, and what one takes less than \
             the other keeps no promise.",
            listed(&before),
            listed(&after)
        )
    })
}

/// The same by the kernels that both sides have.
fn different_kernels(sessions: &[Loaded], before: usize) -> Option<String> {
    let of = |sessions: &[Loaded]| -> BTreeMap<String, f64> {
        let mut times = BTreeMap::new();
        for kernel in sessions.iter().flat_map(|loaded| &loaded.profile.kernels) {
            *times.entry(kernel.short_name.clone()).or_default() += kernel.gpu_total_ns().unwrap_or(0.0);
        }
        times
    };
    let (before, after) = sessions.split_at(before.min(sessions.len()));
    let (before, after) = (of(before), of(after));
    let common = |side: &BTreeMap<String, f64>, other: &BTreeMap<String, f64>| {
        let shared: f64 = side.iter().filter(|(name, _)| other.contains_key(*name)).map(|(_, ns)| ns).sum();
        let whole: f64 = side.values().sum();
        (whole > 0.0).then(|| shared / whole)
    };
    let (of_before, of_after) = (common(&before, &after)?, common(&after, &before)?);
    (of_before.max(of_after) < COMMON).then(|| {
        format!(
            "Findings are not followed and promises are not judged: kernels that both sides have take {} and {} of their \
             kernels' time, so they are taken for different programs.",
            units::share(of_before),
            units::share(of_after)
        )
    })
}

/// The name of what a command runs: the script or module that an interpreter or launcher is given,
/// else the executable; with the subcommand that follows, because one executable may hold several
/// programs.
fn program(command: &[String]) -> Option<String> {
    let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let is_script = |word: &String| [".py", ".sh", ".jl", ".ipynb"].iter().any(|end| word.ends_with(end));
    let first = command.first()?;
    let script = || Some(command.iter().skip(1).position(is_script)? + 1);
    let module = || Some(command.iter().position(|word| word == "-m")? + 1);
    let of_python = || module().filter(|&at| first.contains("python") && at < command.len());
    let at = is_launcher(&name(first)).then(script).flatten().or_else(of_python).unwrap_or(0);
    let subcommand = command.get(at + 1).filter(|word| is_subcommand(word));
    Some([Some(name(&command[at])), subcommand.cloned()].into_iter().flatten().collect::<Vec<_>>().join(" "))
}

/// Whether the first argument of a program is a word, and neither an option, a number nor a file.
fn is_subcommand(word: &str) -> bool {
    let is_of_word = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-');
    word.starts_with(char::is_alphabetic) && word.chars().all(is_of_word)
}

/// Whether a program runs the script that it is given.
fn is_launcher(name: &str) -> bool {
    const LAUNCHERS: [&str; 12] = [
        "python",
        "pypy",
        "bash",
        "sh",
        "env",
        "torchrun",
        "accelerate",
        "mpirun",
        "mpiexec",
        "srun",
        "uv",
        "julia",
    ];
    LAUNCHERS.iter().any(|launcher| {
        name.strip_prefix(launcher).is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.'))
    })
}

/// Compares what is shown of sessions: the first `before` ones with the others. Of different
/// programs no finding is followed.
pub fn compared(sessions: &[Loaded], shown: &[Shown<'_>], before: usize) -> Comparison {
    let mut comparison = compared_as_one_program(shown, before);
    if different_programs(sessions, before).is_some() {
        comparison.together = None;
        comparison.followed.clear();
        comparison.new_findings.clear();
    }
    comparison
}

fn compared_as_one_program(shown: &[Shown<'_>], before: usize) -> Comparison {
    let advice: Vec<Advice> = shown.iter().map(|shown| shown.advise(&[])).collect();
    let runs: Vec<Run<'_>> = shown
        .iter()
        .zip(&advice)
        .map(|(shown, advice)| Run { job: &shown.job, profile: shown.profile(), advice })
        .collect();
    let (before, after) = runs.split_at(before);
    compare(before, after)
}

/// Effect of a change, in one sentence.
pub fn verdict(comparison: &Comparison) -> String {
    if let Some(counts) = &comparison.counts {
        return counted(counts);
    }
    if comparison.on_cpu_device && !comparison.is_of_repeated_runs() {
        return "Nothing was counted, and times of the CPU device are comparable between repeated runs only \
            (--before A1 A2 A3 --after B1 B2 B3)."
            .to_owned();
    }
    if let Some(step) = &comparison.step_ns {
        let over = match step.runs.0.len().max(step.runs.1.len()) {
            1 => {
                let (before, after) = comparison.steps;
                format!("means of {} and {} steps", units::count(before), units::count(after))
            }
            _ => of_runs(step),
        };
        return timed("A step takes", step, &over);
    }
    let span = &comparison.span_ns;
    match (span.before, span.after) {
        (Some(before), Some(after)) if before.value > 0.0 && after.value > 0.0 => {
            let over = match span.significant {
                None => "one run each: the noise is unknown".to_owned(),
                Some(_) => of_runs(span),
            };
            timed("The time from first to last work is", span, &over)
        }
        (before, after) if ![before, after].into_iter().flatten().any(|side| side.value > 0.0) => {
            "Nothing can be compared: neither side has a kernel launch.".to_owned()
        }
        _ => "Nothing can be compared: one side has no kernel launch.".to_owned(),
    }
}

fn of_runs(change: &Change) -> String {
    format!("means of {} and {} runs", change.runs.0.len(), change.runs.1.len())
}

/// `A step takes 12.1 ms instead of 18.3 ms (1.51× faster; …).`
fn timed(what: &str, change: &Change, over: &str) -> String {
    let time =
        |figure: Option<apex_profile::Figure>| figure.map_or("?".into(), |figure| units::time(figure.value));
    let (before, after) = (time(change.before), time(change.after));
    match (change.significant, change.ratio) {
        (Some(false), _) if before == after => {
            format!("{what} {after}, as before: the difference is not significant ({over}).")
        }
        (Some(false), _) => {
            format!("{what} {after} instead of {before}: the difference is not significant ({over}).")
        }
        (_, Some(_)) if before == after => format!("{what} {after}, as before ({over})."),
        (_, Some(ratio)) if ratio > 0.0 => {
            format!("{what} {after} instead of {before} ({}; {over}).", factor(ratio, "faster", "slower"))
        }
        _ => format!("{what} {after} instead of {before} ({over})."),
    }
}

/// `1.51× faster` from after over before.
fn factor(ratio: f64, less: &str, more: &str) -> String {
    let (times, what) = if ratio <= 1.0 { (1.0 / ratio, less) } else { (ratio, more) };
    format!("{}× {what}", units::ratio(times))
}

/// The count that changed by the largest factor.
fn counted(counts: &CountChanges) -> String {
    let all = [
        ("Global loads and stores take", ["sector", "sectors"], &counts.sectors),
        ("Shared loads and stores take", ["wavefront", "wavefronts"], &counts.wavefronts),
        ("Warps execute", ["instruction", "instructions"], &counts.warp_instructions),
    ];
    let by =
        |change: &Change| change.ratio.filter(|ratio| *ratio > 0.0).map_or(0.0, |ratio| ratio.ln().abs());
    let real = all.into_iter().filter(|(.., change)| change.significant == Some(true));
    let most = real.max_by(|a, b| by(a.2).total_cmp(&by(b.2)));
    let is_known = |change: &Change| change.before.is_some() && change.after.is_some();
    if !is_known(&counts.warp_instructions) {
        return "The CPU device counted one side only: the counts cannot be compared.".into();
    }
    let Some((what, [one, many], change)) = most else {
        return "The CPU device counts the same instructions, sectors and wavefronts before and after."
            .into();
    };
    let count =
        |figure: Option<apex_profile::Figure>| figure.map_or(0.0, |figure| figure.value).round() as u64;
    let times = change.ratio.filter(|ratio| *ratio > 0.0);
    let times = times.map_or(String::new(), |ratio| format!("{}, ", factor(ratio, "fewer", "more")));
    format!(
        "{what} {} instead of {} ({times}counted by the CPU device).",
        units::counted(count(change.after), one, many),
        units::count(count(change.before))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use apex_profile::Figure;

    #[test]
    fn different_programs_are_named_and_unknown_ones_are_not() {
        let commands =
            |commands: &[&str]| commands.iter().map(|&command| command.to_owned()).collect::<Vec<_>>();
        let said = |before: &[&str], after: &[&str]| different_commands(&[commands(before), commands(after)]);
        assert_eq!(
            said(&["python torch.py"], &["python jax.py", "python other.py"]).as_deref(),
            Some("The commands differ: `python torch.py` → `python jax.py`, `python other.py`.")
        );
        assert_eq!(said(&["a", "b"], &["a", "b"]), None);
        assert_eq!((said(&[], &["a"]), said(&["a"], &[])), (None, None));
    }

    #[test]
    fn a_program_is_what_is_run_and_not_what_runs_it() {
        for (command, expected) in [
            ("python3.11 -u /srv/train.py --fast", "train.py"),
            ("/usr/bin/python train.py", "train.py"),
            ("torchrun --nproc 2 train.py", "train.py"),
            ("python -m package.train --fast", "package.train"),
            ("./solver --script other.py", "solver"),
            ("/opt/a/solver -n 4", "solver"),
            ("/opt/a/programs page_ranks --seconds 1", "programs page_ranks"),
            ("python -u tool.py evaluate --fast", "tool.py evaluate"),
            ("python -m tool train", "tool train"),
            ("solver 512 --fast", "solver"),
            ("solver input.toml", "solver"),
            ("python", "python"),
            ("python -m", "python"),
        ] {
            let command: Vec<String> = command.split(' ').map(str::to_owned).collect();
            assert_eq!(program(&command).as_deref(), Some(expected), "{command:?}");
        }
        assert_eq!(program(&[]), None);
    }

    #[test]
    fn counts_of_one_side_are_not_compared() {
        let unknown = Change {
            before: None,
            after: Some(Figure::measured(7.0)),
            ratio: None,
            significant: None,
            runs: (vec![], vec![7.0]),
        };
        let counts = CountChanges {
            warp_instructions: unknown.clone(),
            sectors: unknown.clone(),
            excessive_sectors: unknown.clone(),
            wavefronts: unknown.clone(),
            bank_conflicts: unknown.clone(),
            divergent_branches: unknown,
        };
        assert!(counted(&counts).contains("one side only"));
    }

    #[test]
    fn the_sentence_says_by_how_much_and_how_sure() {
        let change = |after: f64, significant| Change {
            before: Some(Figure::measured(18.3e6)),
            after: Some(Figure::measured(after)),
            ratio: Some(after / 18.3e6),
            significant,
            runs: (vec![18.3e6], vec![after]),
        };
        let said = |after, significant| {
            timed("A step takes", &change(after, significant), "means of 40 and 41 steps")
        };
        assert_eq!(
            said(12.1e6, Some(true)),
            "A step takes 12.1 ms instead of 18.3 ms (1.51× faster; means of 40 and 41 steps)."
        );
        assert!(said(36.6e6, None).contains("36.6 ms instead of 18.3 ms (2.00× slower; "));
        assert!(said(18.4e6, Some(false)).contains("not significant"));
        assert_eq!(said(18.3e6, None), "A step takes 18.3 ms, as before (means of 40 and 41 steps).");
    }
}
