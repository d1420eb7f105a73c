//! The thread that samples.
//!
//! It runs in `apex run`. Its share of a processor is bounded: it waits the longer the more a round
//! took. The time between rounds is random around its mean, so that a loop of the program that
//! takes as long does not always meet it at the same place.

use crate::file::Writer;
use crate::linux::clock_ns;
use crate::native::Libraries;
use crate::process::{Moment, Output, Watched};
use crate::python::{self, Files};
use crate::record::{Counters, Head};
use apex_random::Random;
use apex_untrusted::Folder;
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// The settings of sampling.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Mean time from one sample of a thread to the next.
    pub period: Duration,
    /// Most bytes of the file.
    pub most_bytes: u64,
    /// Samples only in every other interval of this length of the monotonic clock, beginning with
    /// the even ones: to measure what sampling costs a program.
    pub windows: Option<Duration>,
}

/// Samples of a thread in a second, unless something else is asked for.
pub const USUAL_HZ: u32 = 100;

impl Default for Options {
    fn default() -> Self {
        let period = Duration::from_secs(1) / USUAL_HZ;
        Self { period, most_bytes: 64 << 20, windows: None }
    }
}

/// The least ratio of a pause to the CPU time of the round before it: sampling never takes more
/// than 3% of a processor.
const PAUSE_BY_COST: u32 = 33;
/// The time from one listing of processes and threads to the next.
const LIST_EVERY_NS: u64 = 200_000_000;
/// The same where threads of a process come and go.
const LIST_SOON_NS: u64 = 5_000_000;
/// The time from one writing to the next.
const WRITE_EVERY_NS: u64 = 1_000_000_000;
/// Most threads that are sampled: each has two open files.
const MOST_THREADS: usize = 256;
/// Most processes that are sampled.
const MOST_PROCESSES: usize = 64;
/// Time for which the end waits for a round that is being made or written. Only a file system that
/// hangs takes so long; on a busy machine, a round may take a second.
const PATIENCE: Duration = Duration::from_secs(10);

/// A thread that samples until it is stopped.
#[derive(Debug)]
pub struct Sampler {
    stop: Sender<()>,
    ended: Receiver<io::Result<()>>,
}

impl Sampler {
    /// Starts the thread, which writes into the session in `folder` where the threads of processes
    /// are. `processes` is asked again and again which processes that shall be; their descendants
    /// belong to them.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(
        folder: Folder,
        options: Options,
        processes: impl FnMut() -> Vec<u32> + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let (told, ended) = channel();
        std::thread::Builder::new().name("apex-stacks".into()).spawn(move || {
            let sampled = Sampling::new(folder, options).run(&stopped, processes);
            // Nobody may be left to listen.
            let _ = told.send(sampled);
        })?;
        Ok(Self { stop, ended })
    }

    /// Has the thread end, and waits for it a while.
    ///
    /// # Errors
    /// The reason why it could not write; then what it had written before is there.
    pub fn finish(self) -> io::Result<()> {
        drop(self.stop);
        self.ended.recv_timeout(PATIENCE).unwrap_or(Ok(()))
    }
}

struct Sampling {
    folder: Option<Folder>,
    options: Options,
    /// Made when the first process is found.
    writer: Option<Writer>,
    files: Files,
    libraries: Libraries,
    processes: BTreeMap<u32, Watched>,
    counters: Counters,
    random: Random,
    began_ns: u64,
    listed_ns: u64,
    written_ns: u64,
}

impl Sampling {
    fn new(folder: Folder, options: Options) -> Self {
        let began_ns = clock_ns(libc::CLOCK_MONOTONIC);
        Self {
            folder: Some(folder),
            options,
            writer: None,
            files: Files::default(),
            libraries: Libraries::default(),
            processes: BTreeMap::new(),
            counters: Counters::default(),
            random: Random::new(began_ns),
            began_ns,
            listed_ns: 0,
            written_ns: began_ns,
        }
    }

    fn run(mut self, stopped: &Receiver<()>, mut roots: impl FnMut() -> Vec<u32>) -> io::Result<()> {
        let mut pause = self.options.period;
        let mut due_ns = u64::MAX;
        while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            let (now_ns, began) = (clock_ns(libc::CLOCK_MONOTONIC), clock_ns(libc::CLOCK_THREAD_CPUTIME_ID));
            self.counters.late += u64::from(now_ns.saturating_sub(due_ns) > self.period_ns() / 2);
            let round = self.round(now_ns, &mut roots);
            let cost_ns = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID).saturating_sub(began);
            self.counters.cpu_ns += cost_ns;
            self.counters.wall_ns = now_ns.saturating_sub(self.began_ns);
            if !round? {
                return Ok(());
            }
            pause = self.pause(cost_ns);
            due_ns = clock_ns(libc::CLOCK_MONOTONIC) + nanoseconds(pause);
        }
        self.close()
    }

    fn period_ns(&self) -> u64 {
        nanoseconds(self.options.period)
    }

    /// A pause of half to one and a half periods, or longer after an expensive round.
    fn pause(&mut self, cost_ns: u64) -> Duration {
        let jittered = self.options.period.mul_f64(0.5 + self.random.uniform());
        let least = Duration::from_nanos(cost_ns) * PAUSE_BY_COST;
        if least > jittered && !self.processes.is_empty() {
            self.counters.missed += nanoseconds(least) / self.period_ns().max(1);
        }
        jittered.max(least)
    }

    /// Samples all threads once; false if nothing can be sampled here.
    fn round(&mut self, now_ns: u64, roots: &mut impl FnMut() -> Vec<u32>) -> io::Result<bool> {
        let is_changing = self.processes.values().any(Watched::is_changing);
        let every_ns = if is_changing { LIST_SOON_NS } else { LIST_EVERY_NS };
        if now_ns.saturating_sub(self.listed_ns) >= every_ns {
            self.listed_ns = now_ns;
            if !self.list(roots())? {
                return Ok(false);
            }
        }
        let Some(writer) = &mut self.writer else { return Ok(true) };
        if self.options.windows.is_none_or(|windows| is_on(windows, now_ns)) {
            let period_ns = nanoseconds(self.options.period);
            let (counters, libraries) = (&mut self.counters, &mut self.libraries);
            let mut output = Output { writer, counters, libraries };
            for process in self.processes.values_mut() {
                process.sample(Moment { now_ns, period_ns }, &mut output)?;
            }
            self.counters.rounds += 1;
        }
        if now_ns.saturating_sub(self.written_ns) >= WRITE_EVERY_NS {
            self.written_ns = now_ns;
            self.processes.values_mut().try_for_each(|process| process.write_long(writer))?;
            writer.flush(&self.counters)?;
        }
        Ok(true)
    }

    /// Lists processes and threads anew; false if the first process cannot be read.
    fn list(&mut self, roots: Vec<u32>) -> io::Result<bool> {
        let Some(&first) = roots.first() else { return Ok(true) };
        let is_possible = self.begin(first)?;
        let Some(writer) = self.writer.as_mut().filter(|_| is_possible) else { return Ok(is_possible) };
        let ended = self.processes.iter().filter(|(_, process)| !process.is_same());
        for pid in ended.map(|(&pid, _)| pid).collect::<Vec<_>>() {
            self.processes.remove(&pid).map_or(Ok(()), |mut process| process.close(writer))?;
        }
        let mut pending = roots;
        let mut seen = BTreeMap::new();
        let mut threads = 0;
        while let Some(pid) = pending.pop() {
            if seen.insert(pid, ()).is_some() || seen.len() > MOST_PROCESSES {
                continue;
            }
            if !self.processes.contains_key(&pid)
                && let Some(new) = Watched::new(pid, &mut self.files, writer)?
            {
                self.processes.insert(pid, new);
            }
            let Some(process) = self.processes.get_mut(&pid) else { continue };
            threads += process.list_threads(
                MOST_THREADS.saturating_sub(threads),
                nanoseconds(self.options.period),
                &mut self.files,
                writer,
            )?;
            pending.extend(process.children());
        }
        Ok(true)
    }

    /// Makes the writer, where there is none; false if the process cannot be read.
    fn begin(&mut self, first: u32) -> io::Result<bool> {
        let Some(folder) = self.folder.take() else { return Ok(true) };
        let refusal = python::refusal(first);
        let lost = refusal.iter().map(|why| {
            format!(
                "The call stacks of the program's threads were not sampled: {why}. Allow `apex` to trace the \
                 programs that it starts: kernel.yama.ptrace_scope 0 or 1, or CAP_SYS_PTRACE."
            )
        });
        let head = Head { period_ns: self.period_ns(), lost: lost.collect() };
        let mut writer = Writer::new(folder, head, self.options.most_bytes);
        if refusal.is_some() {
            writer.flush(&self.counters)?;
        }
        self.writer = Some(writer);
        Ok(refusal.is_none())
    }

    fn close(mut self) -> io::Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        self.processes.values_mut().try_for_each(|process| process.close(writer))?;
        writer.flush(&self.counters)
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether a moment lies in an interval in which is sampled.
fn is_on(windows: Duration, now_ns: u64) -> bool {
    (now_ns / nanoseconds(windows).max(1)).is_multiple_of(2)
}
