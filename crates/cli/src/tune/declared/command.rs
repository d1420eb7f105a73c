//! The command that is measured: one process for each question, in a process group of its own, with
//! a time limit.
//!
//! Its stdout says the time. It gets no stdin. A signal that ends programs reaches it; the search
//! then ends, and its results are kept.

use super::kept::File;
use super::{Search, earlier, results_path, substitution};
use crate::output;
use crate::run::child::Signals;
use anyhow::Context;
use apex_profile::units;
use apex_search::{Ask, Found, Invalid, Measure, Outcome, Purpose, Results, Stop, tune};
use regex_lite::Regex;
use std::io::{self, IsTerminal as _, Read, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Output of a run that is looked at, bytes from its beginning.
const MOST_OUTPUT: usize = 1 << 20;
/// Time limit of a run as a multiple of the longest successful one among the first.
const PATIENCE: u32 = 10;
/// Shortest time limit that is set without the user.
const SHORTEST: Duration = Duration::from_secs(10);
/// The time limit of the first run.
const FIRST: Duration = Duration::from_secs(600);
/// Time that a program has after a signal, before it is killed.
const GRACE: Duration = Duration::from_secs(2);
/// Time between two looks at the clock while a program runs.
const LOOK: Duration = Duration::from_millis(100);

/// Searches with the command. Also returns the file of the results.
pub fn search(
    search: &Search<'_>,
    output: Option<&Path>,
    json: bool,
) -> anyhow::Result<(Found, Option<PathBuf>)> {
    substitution::check(&search.space, search.command)?;
    let pattern = search.args.pattern.as_deref().map(Regex::new).transpose();
    let pattern = pattern.context("--pattern is no regular expression")?;
    // Before NVML is loaded, which may start threads.
    let signals = Signals::block();
    let mut file = File::new(search, results_path(search, output))?;
    let mut results = earlier(search, &file)?;
    let mut runner = Runner {
        search,
        signals,
        pattern,
        file: &mut file,
        first_took: None,
        began: Instant::now(),
        runs: 0,
        failure: None,
        shows_line: io::stderr().is_terminal(),
        is_quiet: json,
    };
    let found = tune(&search.space, &search.options, &mut results, &mut runner);
    runner.clear_line();
    let failure = runner.failure.take();
    drop(runner);
    file.finish(&results)?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    if found.is_stopped {
        output::remark(format!(
            "interrupted after {}: the results are in {}; the same command goes on from there",
            units::counted(found.trials as u64, "trial", "trials"),
            apex_untrusted::shown(file.path())
        ));
    }
    Ok((found, Some(file.path().to_path_buf())))
}

struct Runner<'a> {
    search: &'a Search<'a>,
    signals: Signals,
    pattern: Option<Regex>,
    file: &'a mut File,
    /// The longest successful run of the original, or the first successful one of all.
    first_took: Option<Duration>,
    began: Instant,
    runs: usize,
    failure: Option<anyhow::Error>,
    shows_line: bool,
    is_quiet: bool,
}

/// The status and output of a run.
struct Ended {
    status: ExitStatus,
    timed_out: bool,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Measure for Runner<'_> {
    fn measure(&mut self, ask: Ask) -> Result<Outcome, Stop> {
        if self.failure.is_some() || self.signals.ends_before_start().is_some() {
            return Err(Stop::Asked);
        }
        let is_search = matches!(ask.purpose, Purpose::Trial(_));
        if is_search && self.search.args.time_limit.is_some_and(|limit| self.began.elapsed() >= limit) {
            return Err(Stop::Done);
        }
        self.show(&ask);
        let began = Instant::now();
        let ended = match self.run(&ask) {
            Ok(ended) => ended,
            Err(error) => {
                self.failure = Some(error);
                return Err(Stop::Asked);
            }
        };
        if self.signals.interrupted() {
            return Err(Stop::Asked);
        }
        let outcome = self.outcome(&ended);
        self.note(&ask, &outcome, began.elapsed());
        Ok(outcome)
    }

    fn keep(&mut self, results: &Results) {
        if let Err(error) = self.file.keep(results) {
            self.failure.get_or_insert(error);
        }
    }
}

impl Runner<'_> {
    fn run(&mut self, ask: &Ask) -> anyhow::Result<Ended> {
        self.runs += 1;
        let space = &self.search.space;
        let words = substitution::words(space, ask.number, self.search.command);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for (parameter, value) in space.parameters().iter().zip(space.values(ask.number)) {
            command.env(&parameter.name, value.to_string());
        }
        command.process_group(0);
        let spawned = self.signals.spawn(&mut command);
        let mut child =
            spawned.with_context(|| format!("cannot run {}", apex_untrusted::shown(&words[0])))?;
        let stdout = drained(child.stdout.take());
        let stderr = drained(child.stderr.take());
        let (status, timed_out) = self.wait(&mut child)?;
        // Processes that the program left would disturb the next run, and keep the pipes open.
        kill_group(child.id(), libc::SIGKILL);
        Ok(Ended { status, timed_out, stdout: received(&stdout), stderr: received(&stderr) })
    }

    fn wait(&self, child: &mut Child) -> anyhow::Result<(ExitStatus, bool)> {
        let (began, limit, group) = (Instant::now(), self.limit(), child.id());
        let (mut timed_out, mut interrupted) = (false, None::<Instant>);
        let look = || {
            if self.signals.interrupted() {
                let since = interrupted.get_or_insert_with(Instant::now);
                kill_group(group, if since.elapsed() < GRACE { libc::SIGTERM } else { libc::SIGKILL });
            } else if began.elapsed() >= limit {
                timed_out = true;
                kill_group(group, libc::SIGKILL);
            }
            Some(LOOK.min(limit.saturating_sub(began.elapsed()).max(Duration::from_millis(1))))
        };
        let status = self.signals.wait(child, look).context("cannot wait for the program")?;
        Ok((status, timed_out))
    }

    fn limit(&self) -> Duration {
        let by_first = || self.first_took.map_or(FIRST, |took| (took * PATIENCE).max(SHORTEST));
        self.search.args.timeout.unwrap_or_else(by_first)
    }

    /// The outcome of a run.
    fn outcome(&self, ended: &Ended) -> Outcome {
        let said = last_line(&ended.stderr);
        if ended.timed_out {
            return Outcome::Failed(
                Invalid::Timeout,
                format!("longer than {:.3} s", self.limit().as_secs_f64()),
            );
        }
        let text = String::from_utf8_lossy(&ended.stdout);
        if let Some(invalid) = named_failure(&text) {
            return Outcome::Failed(invalid, said);
        }
        if !ended.status.success() {
            let how = match ended.status.signal() {
                Some(signal) => format!("signal {signal}"),
                None => format!("exit status {}", ended.status.code().unwrap_or_default()),
            };
            return Outcome::Failed(
                Invalid::Runtime,
                [how, said].join(": ").trim_end_matches(": ").to_owned(),
            );
        }
        match times(&text, self.pattern.as_ref()) {
            Ok(times) => Outcome::Times(times),
            Err(what) => Outcome::Failed(Invalid::Runtime, what),
        }
    }

    /// Keeps what the time limit follows from, and says what failed first.
    fn note(&mut self, ask: &Ask, outcome: &Outcome, took: Duration) {
        match outcome {
            Outcome::Times(_) if self.first_took.is_none() || ask.purpose == Purpose::Original => {
                self.first_took = Some(self.first_took.map_or(took, |before| before.max(took)));
            }
            Outcome::Failed(_, said) if self.runs <= 3 && self.first_took.is_none() => {
                self.clear_line();
                let which = self.search.space.describe(ask.number);
                output::remark(format!("{which} failed: {said}"));
            }
            _ => {}
        }
    }

    /// A line about the progress, on a terminal in place.
    fn show(&mut self, ask: &Ask) {
        let (options, space) = (&self.search.options, &self.search.space);
        let of = options.trials.min(space.len());
        let what = match ask.purpose {
            Purpose::Trial(number) => format!("trial {number} of {of}"),
            Purpose::Original => "the original".to_owned(),
            Purpose::Again => "a new best, again".to_owned(),
            Purpose::Final => "comparing the best".to_owned(),
            Purpose::Pair => "pairs with the original".to_owned(),
        };
        let best = ask.best.map_or(String::new(), |best| format!(", best {}", units::time(best * 1e6)));
        if self.shows_line {
            let _ = write!(io::stderr(), "\r\x1b[Kapex: {what}{best}");
        } else if !self.is_quiet && self.runs > 0 && self.runs.is_multiple_of(100) {
            output::remark(format!("{what}{best}"));
        }
    }

    fn clear_line(&self) {
        if self.shows_line {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// Sends a signal to the processes of a group that this process started.
fn kill_group(group: u32, signal: libc::c_int) {
    // SAFETY: takes integers. The group's number is that of a child, which was not reused while a
    // process of the group lives; without one, nothing happens.
    unsafe { libc::kill(-group.cast_signed(), signal) };
}

/// Reads a pipe to its end in a thread, and keeps its beginning.
fn drained(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let (mut kept, mut piece) = (Vec::new(), [0; 8192]);
        let Some(mut pipe) = pipe else { return };
        while let Ok(count @ 1..) = pipe.read(&mut piece) {
            kept.extend_from_slice(&piece[..count.min(MOST_OUTPUT - kept.len())]);
        }
        // Nobody waits any more if a process outside of the group keeps the pipe open.
        let _ = sender.send(kept);
    });
    receiver
}

/// The bytes that a pipe had; none if a process keeps it open.
fn received(pipe: &Receiver<Vec<u8>>) -> Vec<u8> {
    pipe.recv_timeout(GRACE).unwrap_or_default()
}

fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    last.chars().take(200).collect()
}

/// The failure that a program names in a line of its own, as `failed: compile`.
fn named_failure(text: &str) -> Option<Invalid> {
    let word = text.lines().find_map(|line| line.trim().strip_prefix("failed: "))?;
    Invalid::NAMES.into_iter().find(|(name, _)| *name == word.trim()).map(|(_, invalid)| invalid)
}

/// The times in a text, in milliseconds.
fn times(text: &str, pattern: Option<&Regex>) -> Result<Vec<f64>, String> {
    let times: Vec<f64> = match pattern {
        None => text.lines().filter_map(|line| in_milliseconds(line.trim())).collect(),
        Some(pattern) => pattern
            .captures_iter(text)
            .filter_map(|found| {
                let group = |at: usize| found.get(at).map_or("", |group| group.as_str());
                in_milliseconds(&format!("{} {}", group(1), group(2)))
            })
            .collect(),
    };
    match (times.is_empty(), times.iter().find(|time| time.is_nan() || **time <= 0.0)) {
        (true, _) if pattern.is_some() => {
            Err("its output has no time where --pattern looks for it".to_owned())
        }
        (true, _) => Err("it printed no line with a time; --pattern finds one in other output".to_owned()),
        (_, Some(time)) => Err(format!("it printed {time} as a time")),
        _ => Ok(times),
    }
}

/// A number with an optional unit, without which it has milliseconds.
fn in_milliseconds(text: &str) -> Option<f64> {
    let at =
        text.find(|c: char| c.is_alphabetic() && !matches!(c, 'e' | 'E') || c == ' ').unwrap_or(text.len());
    let scale = match text[at..].trim() {
        "ns" => 1e-6,
        "us" | "µs" => 1e-3,
        "ms" | "" => 1.0,
        "s" => 1e3,
        _ => return None,
    };
    text[..at].parse::<f64>().ok().map(|number| number * scale).filter(|time| time.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_number_are_times() {
        let text = "device 0\n1.5\n2 us\n 3e-3 s \n4ns\nblock 5\n";
        assert_eq!(times(text, None), Ok(vec![1.5, 2e-3, 3.0, 4e-6]));
        assert!(
            times("1.5 GB/s\n", None).is_err() && times("-1\n", None).is_err() && times("0\n", None).is_err()
        );
    }

    #[test]
    fn a_pattern_finds_times_in_other_output() {
        let pattern = Regex::new(r"Kernel: ([0-9.]+) (\w+)").unwrap();
        assert_eq!(times("Copy: 9 ms\nKernel: 12.5 us\n", Some(&pattern)), Ok(vec![12.5e-3]));
        assert!(times("Copy: 9 ms\n", Some(&pattern)).is_err());
    }

    #[test]
    fn failures_have_names() {
        assert_eq!(named_failure("x\nfailed: correctness\n"), Some(Invalid::Correctness));
        assert_eq!(named_failure("failed: otherwise\n"), None);
    }
}
