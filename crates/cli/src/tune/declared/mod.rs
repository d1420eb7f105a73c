//! `apex tune --space`: searches among declared parameters ([`apex_search`]).
//!
//! Times come from a command ([`command`]), from whoever answers on stdin ([`conversation`]), or
//! from the results of a file ([`replay`]). Outcomes are kept in a T4 file ([`kept`]), so that an
//! interrupted search goes on where it was.

mod command;
mod conversation;
mod kept;
mod replay;
mod substitution;
mod text;

use super::Stopped;
use crate::output::{self, Color};
use crate::text::Style;
use crate::{exit, units};
use anyhow::{Context, bail};
use apex_conventions::documents::SEARCHED;
use apex_search::{
    Found, Invalid, Kept, Number, Options, Ratio, Results, Space, Strategy, Value, input, t4, tune,
};
use apex_untrusted::read;
use clap::builder::{FalseyValueParser, PossibleValuesParser, TypedValueParser};
use kept::File;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Largest file of a space or of results that is read, bytes.
const MOST_BYTES: u64 = 256 << 20;

/// Options of a search among declared parameters.
#[derive(clap::Args, Debug)]
#[command(
    next_help_heading = "Declared parameters",
    group = clap::ArgGroup::new("searched").args(["space", "replay"]).multiple(true)
)]
pub struct Declared {
    /// Search among the parameters of this file (JSON: the short form of docs/tune.md, or T1)
    /// instead of launch shapes. COMMAND prints its time; it gets the parameters in place of
    /// `{NAME}` in its arguments, as the environment variables NAME, and as -DNAME=VALUE in place
    /// of `{defines}`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["verify", "budget", "fast"])]
    space: Option<PathBuf>,
    /// With --space: print each configuration as a line of JSON, and read its times from stdin
    #[arg(long, requires = "space", conflicts_with = "command", value_parser = FalseyValueParser::new())]
    ask: bool,
    /// Take the times from these results (T4, of this or another tuner), to compare strategies;
    /// without --space, their configurations are the space
    #[arg(long, value_name = "T4", conflicts_with_all = ["verify", "budget", "fast", "command", "ask"])]
    replay: Option<PathBuf>,
    /// How to search [values: model, descend, random, exhaustive]
    /// [default: model, or exhaustive if all configurations are tried]
    #[arg(
        long,
        requires = "searched",
        value_name = "STRATEGY",
        value_parser = PossibleValuesParser::new(Strategy::NAMES.map(|(name, _)| name)).map(strategy),
        hide_possible_values = true
    )]
    strategy: Option<Strategy>,
    /// Configurations to try: a number, or a share of the space as 5%
    /// [default: 5%, at least 100 and at most 1000]
    #[arg(long, requires = "searched", value_name = "COUNT", value_parser = parse_trials)]
    trials: Option<Count>,
    /// Time for the search; then the best is confirmed [default: no limit]
    #[arg(long, requires = "searched", value_name = "TIME", value_parser = units::parse_duration)]
    time_limit: Option<Duration>,
    /// Time for one run of COMMAND, after which it is killed and counts as failed
    /// [default: 10 times the longest successful run of the original or the first trial, at least
    /// 10s; 10min for that one]
    #[arg(long, requires = "searched", value_name = "TIME", value_parser = units::parse_duration)]
    timeout: Option<Duration>,
    /// Regular expression of the time in the output of COMMAND; its first group is the number, a
    /// second one the unit [default: lines of a number and ns, us, ms (without a unit as well) or
    /// s]
    #[arg(long, requires = "searched", value_name = "REGEX")]
    pattern: Option<String>,
    /// The configuration without tuning, as NAME=VALUE,…; values that are left out are those of
    /// the file's original, or the first [default: the file's]
    #[arg(long, requires = "searched", value_name = "VALUES")]
    original: Option<String>,
    /// Pairs of runs that confirm the best against the original, at least 10; 0 for none
    #[arg(long, requires = "searched", value_name = "COUNT", default_value = "20", value_parser = parse_pairs)]
    pairs: usize,
    /// The seed of all random draws
    #[arg(long, requires = "searched", value_name = "NUMBER", default_value = "0")]
    seed: u64,
    /// A file on which the times depend, such as the kernel's source; the results are kept for its
    /// content alone. Files among the words of COMMAND are found without
    #[arg(long, requires = "searched", value_name = "FILE")]
    depends: Vec<PathBuf>,
    /// Something else that the results are kept for, such as size=4096
    #[arg(long = "key", requires = "searched", value_name = "NAME=VALUE", value_parser = parse_key)]
    keys: Vec<(String, String)>,
    /// Try configurations again that failed in an earlier run
    #[arg(long, requires = "searched", value_parser = FalseyValueParser::new())]
    retry: bool,
}

/// A number of trials.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Count {
    Number(usize),
    Share(f64),
}

fn strategy(name: String) -> Strategy {
    let found = Strategy::NAMES.iter().find(|(of, _)| *of == name);
    found.map_or_else(Strategy::default, |(_, strategy)| *strategy)
}

fn parse_trials(text: &str) -> Result<Count, String> {
    let wrong =
        || format!("`{text}` is no count; write 200 for 200 configurations, or 5% for a share of the space");
    if text.ends_with('%') {
        return units::parse_percent(text).map(|percent| Count::Share(percent / 100.0)).map_err(|_| wrong());
    }
    match text.parse() {
        Ok(number @ 1..) => Ok(Count::Number(number)),
        _ => Err(wrong()),
    }
}

fn parse_pairs(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(pairs) if pairs == 0 || (apex_search::LEAST_PAIRS..=100_000).contains(&pairs) => Ok(pairs),
        _ => Err(format!(
            "`{text}` is no number of pairs: at least {} decide; 0 confirms nothing",
            apex_search::LEAST_PAIRS
        )),
    }
}

fn parse_key(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is no key; write size=4096")),
    }
}

impl Declared {
    /// Whether the command line asks for declared parameters.
    pub fn is_given(&self) -> bool {
        self.space.is_some() || self.replay.is_some()
    }

    fn options(&self, space: &Space, original: Option<Number>) -> Options {
        let default = Options::for_space(space);
        let trials = match self.trials {
            Some(Count::Number(number)) => number,
            Some(Count::Share(share)) => ((space.len() as f64 * share).round() as usize).max(1),
            None => default.trials,
        };
        let strategy = match self.strategy {
            Some(strategy) => strategy,
            None if trials >= space.len() => Strategy::Exhaustive,
            None => Strategy::default(),
        };
        Options { strategy, seed: self.seed, trials, pairs: self.pairs, original }
    }
}

/// The inputs of a search.
struct Search<'a> {
    args: &'a Declared,
    space: Space,
    options: Options,
    /// The program and its arguments; empty without one.
    command: &'a [OsString],
}

/// The document of a search.
#[derive(Debug, Serialize)]
struct Searched {
    /// Configurations of the space.
    configurations: usize,
    strategy: &'static str,
    seed: u64,
    /// Trials that were made, and those of them whose results were known.
    trials: usize,
    known: usize,
    failed: BTreeMap<Invalid, usize>,
    interrupted: bool,
    original: Option<Timed>,
    best: Option<Timed>,
    /// The best's time divided by the original's.
    ratio: Option<Ratio>,
    /// Why the original is the best: `none_better`, `tie` or `few_pairs`.
    kept: Option<&'static str>,
    /// The longest time of the original divided by the shortest.
    drift: Option<f64>,
    /// The file of the results.
    results: Option<String>,
}

#[derive(Debug, Serialize)]
struct Timed {
    configuration: BTreeMap<String, Value>,
    /// The measured median, milliseconds.
    time_ms: f64,
}

impl Searched {
    fn of(search: &Search<'_>, found: &Found, results: Option<&Path>) -> Self {
        let timed = |(number, time_ms)| Timed { configuration: named(&search.space, number), time_ms };
        Self {
            configurations: search.space.len(),
            strategy: search.options.strategy.name(),
            seed: search.options.seed,
            trials: found.trials,
            known: found.known,
            failed: found.failed.clone(),
            interrupted: found.is_stopped,
            original: search.options.original.zip(found.original).map(timed),
            best: found.best.map(timed),
            ratio: found.ratio,
            kept: found.kept.map(|kept| match kept {
                Kept::NoneBetter => "none_better",
                Kept::Tie => "tie",
                Kept::FewPairs => "few_pairs",
            }),
            drift: found.drift.map(apex_search::rounded),
            results: results.map(|path| path.to_string_lossy().into_owned()),
        }
    }
}

/// The values of a configuration by their parameters' names.
fn named(space: &Space, number: Number) -> BTreeMap<String, Value> {
    let names = space.parameters().iter().map(|parameter| parameter.name.clone());
    names.zip(space.values(number)).collect()
}

/// Runs a search. `json` and `output` are those of `apex tune`.
pub fn execute(
    args: &Declared,
    command: &[OsString],
    output: Option<&Path>,
    json: bool,
    color: Color,
) -> Result<ExitCode, Stopped> {
    if output == Some(Path::new("-")) {
        return Err(anyhow::anyhow!("-o names the file of results; --json prints what was found").into());
    }
    let (space, original, replayed) = read_space(args)?;
    let original = match &args.original {
        Some(text) => Some(substitution::configuration(&space, original, text)?),
        None => original,
    };
    let options = args.options(&space, original);
    let search = Search { args, space, options, command };
    let (found, path) = if let Some(replayed) = replayed {
        let mut replay = replay::Replay { results: Results::new(replayed, &search.space) };
        (tune(&search.space, &search.options, &mut Results::default(), &mut replay), None)
    } else if args.ask {
        conversation::search(&search, output)?
    } else {
        command::search(&search, output, json)?
    };
    finish(&search, &found, path.as_deref(), json, color)
}

type Inputs = (Space, Option<Number>, Option<Vec<apex_search::Measured>>);

/// The space, its original, and the results to replay.
fn read_space(args: &Declared) -> anyhow::Result<Inputs> {
    let text = |path: &Path| {
        read::read_to_string(path, MOST_BYTES)
            .with_context(|| format!("cannot read {}", apex_untrusted::shown(path)))
    };
    let replayed = args.replay.as_deref().map(|path| {
        let read =
            t4::read(&text(path)?).with_context(|| format!("cannot use {}", apex_untrusted::shown(path)))?;
        anyhow::Ok(read.results)
    });
    let replayed = replayed.transpose()?;
    if let Some(path) = &args.space {
        let input = input::read(&text(path)?)
            .with_context(|| format!("cannot use {}", apex_untrusted::shown(path)))?;
        return Ok((input.space, input.original, replayed));
    }
    let Some(results) = &replayed else { bail!("a space is needed: --space FILE") };
    let space = t4::space(results).context("cannot replay the results")?;
    Ok((space, None, replayed))
}

/// Prints what was found.
fn finish(
    search: &Search<'_>,
    found: &Found,
    path: Option<&Path>,
    json: bool,
    color: Color,
) -> Result<ExitCode, Stopped> {
    let is_found = found.best.is_some() && !found.is_stopped;
    let code = if is_found { ExitCode::SUCCESS } else { ExitCode::from(exit::NO) };
    let searched = Searched::of(search, found, path);
    if search.args.ask {
        conversation::end(&searched)?;
    } else if json {
        output::json(SEARCHED, &searched)?;
    } else {
        let style = Style { color: color.on_stdout() };
        output::page(|out| text::write(out, search, found, path, style, output::width()))?;
    }
    Ok(code)
}

/// The file of a command's results, by default beside the reader's own files.
fn results_path(search: &Search<'_>, output: Option<&Path>) -> PathBuf {
    let stem = search.args.space.as_deref().and_then(Path::file_stem).unwrap_or_default();
    let mut name = stem.to_owned();
    name.push(".results.json");
    output.map_or_else(|| PathBuf::from(name), Path::to_path_buf)
}

/// The results of earlier runs, from their file.
fn earlier(search: &Search<'_>, file: &File) -> anyhow::Result<Results> {
    let mut all = file.read()?;
    if search.args.retry {
        all.retain(|result| result.outcome.cost().is_finite());
    }
    Ok(Results::new(all, &search.space))
}
