//! Runs cases in worker processes.
//!
//! A kernel that fails makes its context unusable, and a kernel that hangs, or a driver that
//! crashes, ends its process. Cases therefore run in worker processes: this program again, with the
//! command `work`. A worker runs its share of the cases and writes each outcome to its standard
//! output. If it ends early, its current case is marked as failed, and another worker continues
//! with the next one.
//!
//! Outcomes are sent as frames: the index of the case, the kind of the outcome (plus [`LAST`] if
//! the worker ends afterwards), the length of the contents, all as little-endian 32-bit words, and
//! the contents, which are results or a message. The first frame has the index [`READY`] and
//! contains the device's name. A worker that ends without it could not open the driver.

use crate::case::Case;
use crate::recording::Outcome;
use crate::runner::{self, Ran};
use anyhow::{Context, Result, bail};
use apex_driver::{Device, Library};
use std::ffi::{CString, OsString};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Seconds after which a case counts as hanging, and opening a driver.
pub const CASE_SECONDS: u32 = 20;
const OPEN_SECONDS: u32 = 60;

/// The index of the frame that says that the driver is open.
const READY: usize = u32::MAX as usize;

/// In the kind of an outcome: no more frames follow.
const LAST: u32 = 0x100;

/// The cases that a worker runs: every `stride`th from `start` on.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// The first case.
    pub start: usize,
    /// From one case to the next.
    pub stride: usize,
    /// Seconds after which a case counts as hanging.
    pub case_seconds: u32,
}

/// The work of a worker process: runs its share and writes frames to `output`. Returns early behind
/// a case that failed.
pub fn work(driver: &str, cases: &[Case], share: Share, output: &mut impl Write) -> Result<()> {
    // SAFETY: an alarm that nobody handles ends the process, which is what is wanted; opening a
    // driver may hang too.
    unsafe { libc::alarm(OPEN_SECONDS) };
    let driver = CString::new(driver)?;
    let (library, mut device) = (Library::open(&driver)?, Device::open_driver(&driver)?);
    write_frame(output, READY, &Outcome::Results(device.name().as_bytes().to_vec()), false)?;
    for index in (share.start..cases.len()).step_by(share.stride) {
        // SAFETY: as above.
        unsafe { libc::alarm(share.case_seconds) };
        let Ran { outcome, context_lost } = runner::run(&device, library, &cases[index]);
        let failed = matches!(outcome, Outcome::Failed(_));
        write_frame(output, index, &outcome, failed)?;
        if failed {
            // SAFETY: ends the process without a word to the driver, whose calls need not return
            // now.
            unsafe { libc::_exit(0) };
        }
        if context_lost {
            // A driver that refuses an instruction only when a kernel reaches it is well, but for
            // the context.
            drop(device);
            device = Device::open_driver(&driver)?;
        }
    }
    Ok(())
}

fn write_frame(output: &mut impl Write, index: usize, outcome: &Outcome, last: bool) -> Result<()> {
    let (kind, bytes) = match outcome {
        Outcome::Results(bytes) => (0u32, bytes.as_slice()),
        Outcome::Refused(words) => (1, words.as_bytes()),
        Outcome::Failed(words) => (2, words.as_bytes()),
    };
    let header = [u32::try_from(index)?, kind | if last { LAST } else { 0 }, u32::try_from(bytes.len())?];
    let mut frame: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
    frame.extend_from_slice(bytes);
    output.write_all(&frame)?;
    Ok(output.flush()?)
}

/// The next frame and whether it is the last one; `None` where the pipe ends.
fn read_frame(input: &mut impl Read) -> Option<(usize, Outcome, bool)> {
    let mut header = [0; 12];
    input.read_exact(&mut header).ok()?;
    let word = |index: usize| {
        header[4 * index..4 * index + 4]
            .iter()
            .rev()
            .fold(0usize, |word, byte| word << 8 | usize::from(*byte))
    };
    let mut bytes = vec![0; word(2)];
    input.read_exact(&mut bytes).ok()?;
    let words = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let kind = word(1);
    let outcome = match kind & 0xff {
        0 => Outcome::Results(bytes),
        1 => Outcome::Refused(words(bytes)),
        _ => Outcome::Failed(words(bytes)),
    };
    Some((word(0), outcome, kind & LAST as usize != 0))
}

/// The outcomes that a fleet brings back.
#[derive(Clone, Debug)]
pub struct Outcomes {
    /// The device's name.
    pub device: String,
    /// For each case its outcome; `None` for those that were not reached before the deadline.
    pub outcomes: Vec<Option<Outcome>>,
}

fn locked(found: &Mutex<Found>) -> MutexGuard<'_, Found> {
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A fleet of workers.
pub struct Workers {
    /// The command of a worker: program and arguments, to which `--start N --stride N` is added.
    pub command: Vec<OsString>,
    /// Number of processes.
    pub workers: usize,
    /// The deadline.
    pub deadline: Option<Instant>,
    /// Gets a line for each case that failed, and one from time to time.
    pub progress: Progress,
}

/// Says on standard error how far the cases are.
#[derive(Default)]
pub struct Progress {
    done: AtomicUsize,
    failed: AtomicUsize,
}

/// Cases after which progress is told.
const TOLD: usize = 100;

impl Progress {
    fn note(&self, index: usize, outcome: &Outcome) {
        let done = 1 + self.done.fetch_add(1, Ordering::Relaxed);
        if let Outcome::Failed(words) = outcome {
            self.failed.fetch_add(1, Ordering::Relaxed);
            eprintln!("case {index}: {words}");
        }
        if done.is_multiple_of(TOLD) {
            eprintln!("{done} cases, {} failed", self.failed.load(Ordering::Relaxed));
        }
    }
}

/// What the shares have brought back so far.
struct Found {
    outcomes: Outcomes,
    /// Shares that are at work, and the error of the first that failed.
    working: usize,
    error: Option<anyhow::Error>,
}

/// From the deadline on, how long workers may take to end; what they have not brought back by then
/// is left out. A process that a driver holds cannot be ended.
const GRACE: Duration = Duration::from_secs(10);

impl Workers {
    /// Runs cases 0 to `count`.
    ///
    /// # Errors
    /// A worker could not be started, or could not open the driver.
    pub fn run(self, count: usize) -> Result<Outcomes> {
        let outcomes = Outcomes { device: String::new(), outcomes: vec![None; count] };
        let found = Arc::new(Mutex::new(Found { outcomes, working: self.workers, error: None }));
        let workers = Arc::new(self);
        for start in 0..workers.workers {
            let (workers, found) = (Arc::clone(&workers), Arc::clone(&found));
            std::thread::spawn(move || {
                let outcome = workers.run_share(start, count, &found);
                let mut found = locked(&found);
                found.working -= 1;
                found.error = found.error.take().or(outcome.err());
            });
        }
        loop {
            let mut found = locked(&found);
            if found.working == 0 || workers.deadline.is_some_and(|end| Instant::now() > end + GRACE) {
                return found.error.take().map_or_else(|| Ok(found.outcomes.clone()), Err);
            }
            drop(found);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Runs one share to its end, with as many processes as it takes.
    fn run_share(&self, start: usize, count: usize, found: &Mutex<Found>) -> Result<()> {
        let note = |index: usize, outcome: Outcome| {
            self.progress.note(index, &outcome);
            locked(found).outcomes.outcomes[index] = Some(outcome);
        };
        let mut next = start;
        while next < count && !self.is_over() {
            let mut child = self.spawn(next)?;
            let mut pipe = child.stdout.take().context("a worker has no output")?;
            let Some((READY, Outcome::Results(device), _)) = read_frame(&mut pipe) else {
                bail!("a worker could not open the driver ({})", self.end(child)?);
            };
            // A worker without cases opens no driver.
            locked(found).outcomes.device = String::from_utf8_lossy(&device).into_owned();
            let mut ended = false;
            while let Some((index, outcome, last)) = read_frame(&mut pipe) {
                if index != next {
                    bail!("a worker ran case {index} where {next} was expected");
                }
                next += self.workers;
                ended = last;
                note(index, outcome);
                if ended || self.is_over() {
                    break;
                }
            }
            let ending = self.end(child)?;
            if next < count && !ended && !self.is_over() {
                note(next, Outcome::Failed(ending));
                next += self.workers;
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() > deadline)
    }

    fn spawn(&self, start: usize) -> Result<Child> {
        let (program, arguments) = self.command.split_first().context("no command for workers")?;
        Command::new(program)
            .args(arguments)
            .args(["--start", &start.to_string(), "--stride", &self.workers.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", program.display()))
    }

    /// Waits for a worker that has closed its output, or is not wanted any more; how it ended.
    fn end(&self, mut child: Child) -> Result<String> {
        let patience = Instant::now() + Duration::from_secs(5);
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status.to_string());
            }
            if Instant::now() > patience || self.is_over() {
                child.kill()?;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
