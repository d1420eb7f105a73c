//! The host's activity while a device was idle: samples of call stacks, by idle account.
//!
//! `apex run` samples the threads of the program from outside ([`apex_host_stacks`]). Of these
//! samples, those of the thread that a device waits for count ([`crate::accounts`]). Two views of
//! them follow in [`super::idle_functions`]: functions, and places in the program.

use apex_ordered::{Gather, Order};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use apex_host_stacks::{Doing, FrameKind, HostStacks, WaitsFor};
use serde::Serialize;

use super::host_profile::HostThread;
use super::interned::Interned;
use super::native::{is_file_of_user, is_function_of_library};
use super::{Activity, Frame};
use crate::accounts::{
    IdleAccount, IdleCause, IdleSums, PhaseKind, SampledSpan, SampledThread, SampledThreads, StackOf,
};

/// The sampling of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HostSampling {
    /// Mean time from one sample of a thread to the next.
    pub period_ns: u64,
    /// Samples of threads.
    pub samples: u64,
    /// Samples of which only the outer frames are known, because the inner ones changed while they
    /// were read.
    pub unsettled: u64,
    /// Samples that could not be read.
    pub failed: u64,
    /// Rounds of samples, each of all threads.
    #[serde(skip)]
    pub rounds: u64,
    /// Time from the start of sampling to the last round, nanoseconds.
    #[serde(skip)]
    pub wall_ns: u64,
    /// Threads that were left out, summed over the rounds: more than are sampled.
    #[serde(skip)]
    pub left_out: u64,
    /// The parts that could not be sampled, with a reason, a sentence each.
    pub lost: Vec<String>,
}

impl HostSampling {
    /// Part of the wished samples of each thread that were taken.
    pub fn part_taken(&self) -> f64 {
        let wished = self.wall_ns as f64 / self.period_ns.max(1) as f64;
        if wished > self.rounds as f64 { self.rounds as f64 / wished } else { 1.0 }
    }

    /// Threads that were not sampled, in the mean of all rounds.
    pub fn threads_left_out(&self) -> u64 {
        let mean = self.left_out as f64 / self.rounds.max(1) as f64;
        mean.round() as u64
    }
}

/// The frames of a thread at the moment of a sample.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostStack {
    /// Frames, innermost first.
    pub frames: Vec<HostFrame>,
    /// The thread's name.
    pub thread: String,
    /// Name of its process.
    pub process: String,
    /// Whether the innermost frame is known.
    pub is_settled: bool,
}

/// A frame of Python or of compiled code.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct HostFrame {
    /// The function, and its place. Compiled code without lines has the path of its library.
    #[serde(flatten)]
    pub frame: Frame,
    /// Whether it is a function of compiled code.
    pub is_native: bool,
}

impl HostFrame {
    /// Whether the code belongs to an installed package, to the standard library, or to the system.
    pub fn is_of_library(&self) -> bool {
        let Frame { file, function, .. } = &self.frame;
        match self.is_native {
            true => !is_file_of_user(file) || is_function_of_library(function),
            false => self.frame.is_of_library(),
        }
    }
}

impl HostFrame {
    /// Whether it stands for a system call.
    pub(super) fn is_call(&self) -> bool {
        self.frame.file == SYSTEM_CALL
    }

    /// A system call, as the innermost frame.
    fn of_call(name: &str) -> Self {
        let frame = Frame { file: SYSTEM_CALL.to_owned(), line: None, function: name.to_owned() };
        Self { frame, is_native: true }
    }
}

/// The name in place of a file, for a system call.
const SYSTEM_CALL: &str = "system call";

/// Numbers and names of system calls (x86-64) that tell what a thread waits for: the disk, the
/// network, a lock on a file.
const CALLS: [(u32, &str); 24] = [
    (0, "read"),
    (1, "write"),
    (17, "pread64"),
    (18, "pwrite64"),
    (19, "readv"),
    (20, "writev"),
    (26, "msync"),
    (40, "sendfile"),
    (42, "connect"),
    (43, "accept"),
    (44, "sendto"),
    (45, "recvfrom"),
    (46, "sendmsg"),
    (47, "recvmsg"),
    (61, "wait4"),
    (73, "flock"),
    (74, "fsync"),
    (75, "fdatasync"),
    (82, "rename"),
    (87, "unlink"),
    (162, "sync"),
    (257, "openat"),
    (277, "sync_file_range"),
    (306, "syncfs"),
];

/// The system call that a thread waits in, if its name tells something.
fn call_that_tells(doing: &Doing) -> Option<&'static str> {
    let Doing::Waiting { syscall: Some(number), .. } = doing else { return None };
    CALLS.iter().find(|(known, _)| known == number).map(|(_, name)| *name)
}

/// Activity of a sampled thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HostState {
    /// It ran, or was ready to run.
    #[default]
    Running,
    /// It waited for the global lock of the Python interpreter.
    WaitsForGil,
    /// It waited for a lock or a condition variable.
    WaitsForLock,
    /// It waited for data from a pipe, a socket or a file.
    WaitsForData,
    /// It waited for a child process.
    WaitsForProcess,
    /// It slept for a time.
    Sleeps,
    /// It waited, and it is unknown for what.
    Waits,
}

impl HostState {
    /// All states.
    pub const ALL: [Self; 7] = [
        Self::Running,
        Self::WaitsForGil,
        Self::WaitsForLock,
        Self::WaitsForData,
        Self::WaitsForProcess,
        Self::Sleeps,
        Self::Waits,
    ];

    /// Whether another thread or process can end the wait.
    pub(crate) fn waits_for_others(self) -> bool {
        !matches!(self, Self::Running | Self::Sleeps)
    }

    /// In words, as the end of "the host …".
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Running => "runs",
            Self::WaitsForGil => "waits for the interpreter's lock (GIL)",
            Self::WaitsForLock => "waits for a lock",
            Self::WaitsForData => "waits for data",
            Self::WaitsForProcess => "waits for a child process",
            Self::Sleeps => "sleeps",
            Self::Waits => "waits",
        }
    }
}

impl From<&Doing> for HostState {
    fn from(doing: &Doing) -> Self {
        match doing {
            Doing::Running => Self::Running,
            Doing::Waiting { r#for, .. } => match r#for {
                WaitsFor::Unknown => Self::Waits,
                WaitsFor::Gil { .. } => Self::WaitsForGil,
                WaitsFor::Futex { .. } => Self::WaitsForLock,
                WaitsFor::Descriptor { .. } | WaitsFor::Ready => Self::WaitsForData,
                WaitsFor::Sleep => Self::Sleeps,
                WaitsFor::Child => Self::WaitsForProcess,
            },
        }
    }
}

/// The owner of the stack that is shown beside that of a waiting thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Other {
    /// The thread that holds the lock.
    Holder,
    /// A thread of the process that ran meanwhile.
    Thread,
    /// A thread of a process that it started, which ran meanwhile.
    Worker,
}

/// Samples of the thread that a device waited for, in one idle account of one phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IdleSamples {
    /// The phase.
    pub phase: PhaseKind,
    /// The account.
    pub cause: IdleCause,
    /// Whether the device was idle for at least [`crate::Pauses::LEAST_NS`] without a break.
    pub is_pause: bool,
    /// Time of the account, according to the model of the device.
    pub idle_ns: f64,
    /// Part of it in which the thread was sampled; what it did in the rest is unknown.
    pub sampled_ns: f64,
    /// Samples that were read.
    pub read: u64,
    /// The stacks found, the most frequent first.
    #[serde(skip)]
    pub stacks: Vec<IdleStack>,
}

/// Samples that found one stack in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdleStack {
    /// Samples; each stands for others too where the file was thinned.
    pub samples: u64,
    /// Index into [`super::Profile::host_stacks`].
    pub stack: usize,
    /// The state of the thread.
    pub state: HostState,
    /// For a thread that waited: what kept it waiting, and an index into
    /// [`super::Profile::host_stacks`].
    pub other: Option<(Other, usize)>,
}

/// The samples of a session, by process.
#[derive(Debug, Default)]
pub(super) struct SampledHost {
    file: HostStacks,
    /// Spans by process and thread.
    spans: BTreeMap<(u32, u32), Vec<SampledSpan>>,
    /// Processes, and the processes that they started.
    children: BTreeMap<u32, BTreeSet<u32>>,
}

impl SampledHost {
    /// Reads the samples of the session in a folder; `None` without any.
    pub fn read(dir: &Path) -> Option<Self> {
        let mut file = HostStacks::read(dir);
        if file.spans.is_empty() && file.problems.is_empty() && file.head.lost.is_empty() {
            return None;
        }
        let mut host = Self::default();
        for span in std::mem::take(&mut file.spans) {
            let (process, thread) = file.thread(&span);
            let doing = file.doing(&span);
            let holder = match doing {
                Doing::Waiting { r#for: WaitsFor::Gil { holder }, .. } => *holder,
                _ => None,
            };
            let call = call_that_tells(doing);
            let spans = host.spans.entry((process.pid, thread.tid)).or_default();
            spans.push(SampledSpan { span, state: doing.into(), holder, call });
        }
        for process in &file.processes {
            host.children.entry(process.parent).or_default().insert(process.pid);
        }
        host.file = file;
        Some(host)
    }

    /// Returns the problems of the file, a sentence each.
    pub fn problems(&self) -> impl Iterator<Item = String> {
        self.file.problems.iter().cloned()
    }

    /// Returns the sampling of the host.
    pub fn sampling(&self) -> HostSampling {
        let counters = &self.file.counters;
        HostSampling {
            period_ns: self.file.head.period_ns,
            samples: counters.samples,
            unsettled: counters.unsettled,
            failed: counters.failed,
            rounds: counters.rounds,
            wall_ns: counters.wall_ns,
            left_out: counters.left_out,
            lost: self.file.head.lost.clone(),
        }
    }

    /// Mean time from one sample of a thread to the next.
    pub(super) fn period_ns(&self) -> u64 {
        self.file.head.period_ns
    }

    /// Mean time between two rounds of samples as they were made: longer than the period where the
    /// sampler kept its budget.
    pub(super) fn interval_ns(&self) -> u64 {
        let counters = &self.file.counters;
        counters.wall_ns.checked_div(counters.rounds).unwrap_or(0).max(self.period_ns())
    }

    /// All threads with their spans.
    pub(super) fn threads_of_all(&self) -> impl Iterator<Item = (HostThread, &[SampledSpan])> {
        self.spans.iter().filter_map(|(&(pid, tid), spans)| {
            let (process, thread) = self.file.thread(&spans.last()?.span);
            let (process, python, name) = (process.name.clone(), process.python.clone(), thread.name.clone());
            Some((HostThread { process, pid, python, name, tid, ..HostThread::default() }, &spans[..]))
        })
    }

    /// The threads of a process whose time begins at `origin_ns`, and those of the processes that
    /// it started; `None` where it was not sampled.
    pub fn threads(&self, pid: u32, origin_ns: u64) -> Option<Arc<SampledThreads>> {
        let period_ns = self.file.head.period_ns;
        let of = |pid: u32| {
            let of_process = self.spans.range((pid, 0)..=(pid, u32::MAX));
            of_process.map(move |(&(_, tid), spans)| (tid, SampledThread::new(tid, spans.clone(), period_ns)))
        };
        let own: BTreeMap<u32, SampledThread> = of(pid).gathered();
        let workers = self.descendants(pid).into_iter().flat_map(of).map(|(_, thread)| thread).collect();
        (!own.is_empty()).then(|| Arc::new(SampledThreads { own, workers, origin_ns, period_ns }))
    }

    /// The processes that a process started, and those that these started.
    fn descendants(&self, pid: u32) -> BTreeSet<u32> {
        let (mut found, mut open) = (BTreeSet::new(), vec![pid]);
        while let Some(parent) = open.pop() {
            let children = self.children.get(&parent).into_iter().flatten();
            open.extend(children.filter(|&&child| child != pid && found.insert(child)));
        }
        found
    }

    /// The samples of an activity, with their stacks in their places.
    pub fn samples(&self, sums: IdleSums, stacks: &mut Interned<HostStack>) -> Vec<IdleSamples> {
        let mut place = |of: StackOf| stacks.place(self.stack(of));
        let of_account = |(account, sum): (IdleAccount, crate::accounts::IdleSum)| {
            let found = sum.samples.into_iter().map(|(sample, samples)| {
                let stack = place(sample.stack);
                let other = sample.other.map(|(other, stack)| (other, place(stack)));
                ((stack, sample.state, other), samples)
            });
            // Threads of one name share stacks.
            let mut each: BTreeMap<_, u64> = BTreeMap::new();
            found.for_each(|(key, samples)| {
                let all = each.entry(key).or_default();
                *all = all.saturating_add(samples);
            });
            let stacks = each.into_iter().map(|((stack, state, other), samples)| IdleStack {
                samples,
                stack,
                state,
                other,
            });
            IdleSamples {
                phase: account.phase,
                cause: account.cause,
                is_pause: account.is_pause,
                idle_ns: sum.idle_ns as f64,
                sampled_ns: sum.sampled_ns as f64,
                read: sum.read,
                stacks: stacks.collect(),
            }
        };
        sums.into_iter().map(of_account).collect()
    }

    pub(super) fn stack(&self, StackOf { thread, stack, is_settled, call }: StackOf) -> HostStack {
        let thread = &self.file.threads[thread as usize];
        let frame = |frame: &apex_host_stacks::Frame| {
            let is_native = frame.kind == FrameKind::Native;
            let function = match is_native {
                true => apex_kernel_names::host_function_name(&frame.function),
                false => frame.function.clone(),
            };
            let line = (frame.line > 0).then_some(frame.line);
            HostFrame { frame: Frame { file: frame.file.clone(), line, function }, is_native }
        };
        let mut frames: Vec<HostFrame> = self.file.frames(stack).map(frame).collect();
        name_memory_function(&mut frames);
        // Frames of the C library alone are not kept, because the call says as much.
        if let Some(call) = call.filter(|_| frames.first().is_some_and(|frame| !frame.is_native)) {
            frames.insert(0, HostFrame::of_call(call));
        }
        HostStack {
            frames,
            thread: thread.name.clone(),
            process: self.file.processes[thread.process as usize].name.clone(),
            is_settled,
        }
    }
}

/// The name in place of the C library's functions for memory and text, and the file of frames in
/// the kernel.
const MEMORY_FUNCTION: &str = "memory function";
const KERNEL: &str = "kernel";

/// Names the innermost function of a thread that runs, where it is one of the C library without a
/// name that another file calls: what that library exports without the address of one function are
/// those that it chooses for the processor, which move, fill and compare memory and text
/// (`memmove`, `memset`, `strlen`).
fn name_memory_function(frames: &mut [HostFrame]) {
    let is_of_c = |frame: &HostFrame| {
        let name = frame.frame.file.rsplit('/').next().unwrap_or_default();
        frame.is_native && (name.starts_with("libc.so") || name.starts_with("libc-"))
    };
    let is_fault = |frame: &HostFrame| frame.frame.file == KERNEL && frame.frame.function == "page fault";
    let at = usize::from(frames.first().is_some_and(is_fault));
    let [innermost, caller, ..] = &mut frames[at..] else { return };
    if innermost.frame.function.is_empty() && is_of_c(innermost) && !is_of_c(caller) {
        innermost.frame.function = MEMORY_FUNCTION.to_owned();
    }
}

/// Moves the stacks of an activity's samples to other places, and puts the most frequent first.
pub(super) fn renumber_host_stacks(activity: &mut Activity, place: &[usize]) {
    for samples in &mut activity.host_samples {
        for one in &mut samples.stacks {
            one.stack = place[one.stack];
            one.other = one.other.map(|(other, stack)| (other, place[stack]));
        }
        samples.stacks.order_by_key(|one| (std::cmp::Reverse(one.samples), one.stack, one.state, one.other));
    }
}
