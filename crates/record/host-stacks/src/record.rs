//! The content of the file, as plain data.

use serde::{Deserialize, Serialize};

/// Most bytes of a text that is written: longer ones are cut.
pub const MOST_TEXT: usize = 1024;

/// The settings with which the file was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Head {
    /// Mean time from one sample of a thread to the next.
    pub period_ns: u64,
    /// The parts that could not be sampled on this machine, with a reason, a sentence each.
    pub lost: Vec<String>,
}

/// A process whose threads were sampled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// Its identifier.
    pub pid: u32,
    /// Its parent's.
    pub parent: u32,
    /// Its name (`comm`).
    pub name: String,
    /// Version of its Python interpreter, such as `3.11.7`; empty if it has none that can be read.
    pub python: String,
}

/// A thread that was sampled. A thread that changed its name has several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Thread {
    /// Index of its process.
    pub process: u32,
    /// Its identifier, as in a process file of the session.
    pub tid: u32,
    /// Its name (`comm`).
    pub name: String,
}

/// The language of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FrameKind {
    /// A Python function.
    #[default]
    Python,
    /// A function of a library or executable.
    Native,
}

/// A frame of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Frame {
    /// Its language.
    pub kind: FrameKind,
    /// `co_qualname` (`co_name` before CPython 3.11), or the name that the library exports, without
    /// parameters; empty if unknown.
    pub function: String,
    /// Path of the script, or of the library or executable.
    pub file: String,
    /// Line in the script; 0 if unknown.
    pub line: u32,
}

/// A stack: a frame on top of another stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stack {
    /// Number of the stack of the callers; 0 if there are none.
    pub callers: u32,
    /// Index of the innermost frame.
    pub frame: u32,
}

/// The object that a waiting thread waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum WaitsFor {
    /// Not known.
    #[default]
    Unknown,
    /// The global lock of the Python interpreter.
    Gil {
        /// Identifier of the thread that held it, if one did.
        holder: Option<u32>,
    },
    /// A lock or condition variable, at this address of the process.
    Futex {
        /// The address.
        address: u64,
    },
    /// A file descriptor: to read, to write, or until it is ready.
    Descriptor {
        /// The kind of file: `pipe`, `socket`, `eventfd`, `file`, `device`, or another word of the
        /// kernel.
        what: String,
        /// Path or inode as /proc shows it, such as `pipe:[1234]`; the same for both ends of a
        /// pipe.
        target: String,
    },
    /// One of several descriptors, or a timeout (`poll`, `epoll_wait`, `select`).
    Ready,
    /// Time to pass.
    Sleep,
    /// A child process.
    Child,
}

/// The state of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "doing")]
pub enum Doing {
    /// It runs, or is ready to run.
    #[default]
    Running,
    /// It waits in a system call.
    Waiting {
        /// Number of the system call (x86-64); `None` where it is not known.
        syscall: Option<u32>,
        /// The object that it waits for.
        r#for: WaitsFor,
    },
}

/// Consecutive samples of a thread that found the same stack and the same doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Index of the thread.
    pub thread: u32,
    /// Number of the stack; 0 if no frame is known.
    pub stack: u32,
    /// Index of what the thread did.
    pub doing: u32,
    /// Time of the first sample.
    pub first_ns: u64,
    /// Time of the last sample; that of the first one if there is only one.
    pub last_ns: u64,
    /// Samples, at least one.
    pub samples: u32,
    /// Number of such spans that this one stands for: 1, or more after the file was thinned.
    pub stands_for: u32,
    /// Whether several readings of all frames agreed, or the thread waited meanwhile. Otherwise
    /// only the outer frames that were stable are in the stack.
    pub is_settled: bool,
    /// Whether the thread did not run between the first and the last sample: it was there all the
    /// time, and not only at the moments of the samples.
    pub is_asleep: bool,
    /// Whether the thread held the global lock of the Python interpreter.
    pub holds_gil: bool,
}

impl Span {
    /// Estimate of the time from `from_ns` to `to_ns` that the thread spent so, ns: the time itself
    /// where it slept, else a period for each sample.
    pub fn time_in(&self, from_ns: u64, to_ns: u64, period_ns: u64) -> f64 {
        let (from, to) = (from_ns.max(self.first_ns), to_ns.min(self.last_ns));
        let inside = to.saturating_sub(from) as f64;
        let weight = f64::from(self.stands_for);
        if self.is_asleep && self.last_ns > self.first_ns {
            return inside * weight;
        }
        weight * period_ns as f64 * self.samples_in(from_ns, to_ns)
    }

    /// Samples from `from_ns` to before `to_ns`, as if they were evenly spaced.
    pub fn samples_in(&self, from_ns: u64, to_ns: u64) -> f64 {
        let intervals = self.samples.saturating_sub(1);
        let step = self.last_ns.saturating_sub(self.first_ns) as f64 / f64::from(intervals.max(1));
        if intervals == 0 || step == 0.0 {
            let is_inside = (from_ns..to_ns).contains(&self.first_ns);
            return if is_inside { f64::from(self.samples) } else { 0.0 };
        }
        // Samples that lie before a moment.
        let before = |ns: u64| {
            let since = ns.saturating_sub(self.first_ns) as f64;
            if ns <= self.first_ns { 0.0 } else { (since / step).ceil().min(f64::from(self.samples)) }
        };
        (before(to_ns) - before(from_ns)).max(0.0)
    }
}

/// The counters of the sampler, up to the end of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Rounds of samples, each of all threads.
    pub rounds: u64,
    /// Rounds that began more than half a period late.
    pub late: u64,
    /// Rounds that were left out, because the sampler was late or to keep its budget.
    pub missed: u64,
    /// Samples of threads.
    pub samples: u64,
    /// Samples that needed no reading, because the thread had not run since the last one.
    pub unchanged: u64,
    /// Samples whose inner frames changed while they were read.
    pub unsettled: u64,
    /// Samples that could not be read at all.
    pub failed: u64,
    /// Threads that were left out in rounds, because there were more than are sampled.
    pub left_out: u64,
    /// CPU time of the sampler, ns.
    pub cpu_ns: u64,
    /// Time from its start to the last round, ns.
    pub wall_ns: u64,
}

impl Counters {
    /// Adds those of another sampler, which ran at the same time.
    pub(crate) fn add(&mut self, other: &Counters) {
        let Counters {
            rounds,
            late,
            missed,
            samples,
            unchanged,
            unsettled,
            failed,
            left_out,
            cpu_ns,
            wall_ns,
        } = *other;
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.rounds, rounds);
        add(&mut self.late, late);
        add(&mut self.missed, missed);
        add(&mut self.samples, samples);
        add(&mut self.unchanged, unchanged);
        add(&mut self.unsettled, unsettled);
        add(&mut self.failed, failed);
        add(&mut self.left_out, left_out);
        add(&mut self.cpu_ns, cpu_ns);
        self.wall_ns = self.wall_ns.max(wall_ns);
    }
}
