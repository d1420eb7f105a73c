//! `--ask`: a line on stdout for each configuration, a line on stdin for what it gives. The module
//! `apex_cuda` tunes by it, and so can any program.

use super::kept::File;
use super::{Search, Searched, earlier, named};
use anyhow::{Context, bail};
use apex_conventions::documents::{Envelope, SEARCHED};
use apex_search::{Ask, Found, Invalid, Measure, Outcome, Purpose, Results, Space, Stop, Value, tune};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// Longest line of an answer, bytes.
const LONGEST: u64 = 1 << 20;

/// A question.
#[derive(Serialize)]
struct Question {
    ask: BTreeMap<String, Value>,
    purpose: &'static str,
    /// The number of the trial, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    trial: Option<usize>,
    best_ms: Option<f64>,
}

/// An answer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    times_ms: Option<Vec<f64>>,
    failed: Option<Invalid>,
    #[serde(default)]
    message: String,
}

struct Conversation<'a> {
    space: &'a Space,
    file: Option<File>,
    failure: Option<anyhow::Error>,
    deadline: Option<std::time::Instant>,
}

/// Asks until the search ends. Also returns the file of the results, if `-o` names one.
pub fn search(search: &Search<'_>, output: Option<&Path>) -> anyhow::Result<(Found, Option<PathBuf>)> {
    let file = output.map(|path| File::new(search, path.to_path_buf())).transpose()?;
    let mut results = file.as_ref().map_or_else(|| Ok(Results::default()), |file| earlier(search, file))?;
    let deadline = search.args.time_limit.map(|limit| std::time::Instant::now() + limit);
    let mut conversation = Conversation { space: &search.space, file, failure: None, deadline };
    let found = tune(&search.space, &search.options, &mut results, &mut conversation);
    let Conversation { mut file, failure, .. } = conversation;
    if let Some(file) = &mut file {
        file.finish(&results)?;
    }
    match failure {
        Some(failure) => Err(failure),
        None => Ok((found, file.map(|file| file.path().to_path_buf()))),
    }
}

/// Says what was found, as the last line.
pub fn end(searched: &Searched) -> anyhow::Result<()> {
    say(&Envelope::of(SEARCHED, searched))
}

fn say(line: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string(line).context("cannot write JSON")?;
    text.push('\n');
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write the next question")
        }
        _ => Ok(()),
    }
}

impl Measure for Conversation<'_> {
    fn measure(&mut self, ask: Ask) -> Result<Outcome, Stop> {
        let is_search = matches!(ask.purpose, Purpose::Trial(_));
        if is_search && self.deadline.is_some_and(|deadline| std::time::Instant::now() >= deadline) {
            return Err(Stop::Done);
        }
        match self.exchange(ask) {
            Ok(Some(outcome)) => Ok(outcome),
            Ok(None) => Err(Stop::Asked),
            Err(error) => {
                self.failure = Some(error);
                Err(Stop::Asked)
            }
        }
    }

    fn keep(&mut self, results: &Results) {
        if let Some(Err(error)) = self.file.as_mut().map(|file| file.keep(results)) {
            self.failure.get_or_insert(error);
        }
    }
}

impl Conversation<'_> {
    /// Asks, and returns the answer; `None` at the end of stdin.
    fn exchange(&self, ask: Ask) -> anyhow::Result<Option<Outcome>> {
        let (purpose, trial) = match ask.purpose {
            Purpose::Original => ("original", None),
            Purpose::Trial(number) => ("trial", Some(number)),
            Purpose::Again => ("again", None),
            Purpose::Final => ("final", None),
            Purpose::Pair => ("pair", None),
        };
        say(&Question { ask: named(self.space, ask.number), purpose, trial, best_ms: ask.best })?;
        let mut line = String::new();
        io::stdin().lock().take(LONGEST).read_line(&mut line).context("cannot read the answer from stdin")?;
        if line.is_empty() {
            return Ok(None);
        }
        outcome(&line).map(Some)
    }
}

fn outcome(line: &str) -> anyhow::Result<Outcome> {
    const FORMS: &str = r#"answer {"times_ms": [1.25]} or {"failed": "compile", "message": "…"}"#;
    let answer: Answer =
        serde_json::from_str(line).with_context(|| format!("cannot read an answer; {FORMS}"))?;
    match (answer.times_ms, answer.failed) {
        (Some(times), None) if !times.is_empty() => {
            match times.iter().find(|time| !(time.is_finite() && **time > 0.0)) {
                Some(time) => bail!("the time {time} of an answer is no positive number of milliseconds"),
                None => Ok(Outcome::Times(times)),
            }
        }
        (None, Some(invalid)) => Ok(Outcome::Failed(invalid, answer.message)),
        _ => bail!("an answer has neither times nor a failure, or both; {FORMS}"),
    }
}
