//! The thread that reads the device and the session, and makes the calls that [`Pilot`] returns.
//!
//! Readings of the clock take microseconds and happen every [`TICK`]; looks at the energy counter
//! and at the session take milliseconds, so they are rarer and their share of the time is bounded.

use crate::{Ended, Gpu, NotSet, Outcome, Pilot, Progress, Seen, Sets};
use apex_governor::{Clock, Settings};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Time between two readings of the clock, which take some microseconds.
const TICK: Duration = Duration::from_millis(20);
/// Number of looks at the energy counter and at the session per window.
const LOOKS: u32 = 10;
/// Minimum ratio of the time between two looks to the time that a reading of the energy takes: the
/// driver, which may make the program wait meanwhile, is busy for at most 1% of the time.
const PAUSE_BY_ENERGY: u32 = 100;
/// The same for reading the session. A longer pause leaves more to read, so with a large ratio
/// pauses would grow without bound.
const PAUSE_BY_SESSION: u32 = 4;
/// Distance between supported clocks if a device reports only one, MHz.
const USUAL_STEP: u32 = 15;
/// Maximum time that `finish` waits for a call in progress.
const PATIENCE: Duration = Duration::from_secs(15);

/// The user's options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Highest slowdown: 0.01 for 1%.
    pub most_slowdown: f64,
    /// Minimum duration of a measurement window.
    pub window: Duration,
}

/// A device, and who sets its clock; nobody in a dry run.
struct Device {
    gpu: Gpu,
    sets: Option<Box<dyn Sets>>,
}

/// A thread that governs until it is stopped.
#[derive(Debug)]
pub struct Governing {
    stop: Sender<()>,
    ended: Receiver<Outcome>,
}

impl Governing {
    /// Starts the thread, which governs the clock by what the session in the folder `session`
    /// shows. In a dry run, `sets` is `None`.
    ///
    /// # Errors
    /// If the device reports no supported clocks, or the thread cannot be started.
    pub fn start(
        gpu: Gpu,
        sets: Option<Box<dyn Sets>>,
        session: PathBuf,
        options: Options,
    ) -> io::Result<Self> {
        let device = Device { gpu, sets };
        let none = || io::Error::other("the GPU tells no clocks");
        let settings = settings(&device.gpu, options).ok_or_else(none)?;
        let (stop, stopped) = channel();
        let (told, ended) = channel();
        std::thread::Builder::new().name("apex-power".into()).spawn(move || {
            let outcome = govern(&stopped, device, &session, settings);
            // The receiver may be gone.
            let _ = told.send(outcome);
        })?;
        Ok(Self { stop, ended })
    }

    /// Makes the thread release the clock and end. Returns `None` if a call of NVML hangs; then the
    /// watchdog releases the clock when this process has ended.
    pub fn finish(self) -> Option<Outcome> {
        drop(self.stop);
        self.ended.recv_timeout(PATIENCE).ok()
    }
}

/// The settings for a device; `None` if it reports no supported clocks.
fn settings(gpu: &Gpu, options: Options) -> Option<Settings> {
    let clocks = (*gpu.clocks.first()?, *gpu.clocks.last()?);
    let steps = gpu.clocks.windows(2).map(|pair| pair[1] - pair[0]);
    let step = steps.max().filter(|step| *step > 0).unwrap_or(USUAL_STEP);
    let window = options.window.as_secs_f64();
    Some(Settings { most_slowdown: options.most_slowdown, clocks, step, window })
}

impl Device {
    /// Makes a call; in a dry run there is none to make.
    fn call(&mut self, clock: Clock) -> Result<(), Ended> {
        let Some(sets) = &mut self.sets else { return Ok(()) };
        let clocks = &self.gpu.clocks;
        let legal = |mhz: u32| clocks.iter().copied().find(|legal| *legal >= mhz).unwrap_or(mhz);
        sets.set(clock.map(legal)).map_err(|error| match error {
            NotSet::Refused(error) if error.is_no_permission() => Ended::NoPermission,
            NotSet::Refused(_) => Ended::Refused,
            NotSet::Unwatched(_) => Ended::NoWatchdog,
            NotSet::Denied(_) => Ended::Refused,
        })
    }

    fn is_unwatched(&mut self) -> bool {
        self.sets.as_mut().is_some_and(|sets| !sets.is_watched())
    }

    /// Releases the clock and ends. Returns whether a clock may still be set.
    fn end(self) -> bool {
        self.sets.is_some_and(|sets| sets.end())
    }

    /// Ends governing: releases the clock, unless another tool has replaced it.
    fn leave(&mut self, is_replaced: bool) {
        if let Some(sets) = &mut self.sets {
            // What fails here is tried again at the end.
            let _ = if is_replaced { sets.forget() } else { sets.set(None) };
        }
    }
}

fn govern(stopped: &Receiver<()>, mut device: Device, session: &Path, settings: Settings) -> Outcome {
    let mut pilot = Pilot::new(settings, device.sets.is_none());
    let mut looks = Looks::new(
        Progress::new(session, &device.gpu.uuid),
        Duration::from_secs_f64(settings.window) / LOOKS,
    );
    while !pilot.has_ended() && stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        if let Err(why) = tick(&mut device, &mut pilot, &mut looks) {
            pilot.end(why);
        }
    }
    device.leave(pilot.is_replaced());
    if pilot.has_ended() {
        // The end of the program is the end of the thread.
        let _ = stopped.recv();
    }
    let is_left = device.end();
    Outcome { is_left, ..pilot.outcome() }
}

fn tick(device: &mut Device, pilot: &mut Pilot, looks: &mut Looks) -> Result<(), Ended> {
    if device.is_unwatched() {
        return Err(Ended::NoWatchdog);
    }
    let state = device.gpu.state().map_err(|_| Ended::Refused)?;
    let look = looks.look(&device.gpu)?;
    let at = looks.began.elapsed().as_secs_f64();
    pilot.step(at, state, look).map_or(Ok(()), |clock| device.call(clock))
}

/// Looks at the energy counter and at the session, which take milliseconds.
struct Looks {
    began: Instant,
    every: Duration,
    next: Instant,
    progress: Progress,
}

impl Looks {
    fn new(progress: Progress, every: Duration) -> Self {
        let now = Instant::now();
        Self { began: now, every, next: now, progress }
    }

    fn look(&mut self, gpu: &Gpu) -> Result<Option<(u64, Seen)>, Ended> {
        let from = Instant::now();
        if from < self.next {
            return Ok(None);
        }
        let seen = self.progress.look();
        let seen_at = Instant::now();
        let millijoules = seen.map(|_| gpu.millijoules()).transpose().map_err(|_| Ended::Refused)?;
        let until = Instant::now();
        let pause = (seen_at - from) * PAUSE_BY_SESSION;
        self.next = until + self.every.max(pause).max((until - seen_at) * PAUSE_BY_ENERGY);
        Ok(millijoules.zip(seen))
    }
}
