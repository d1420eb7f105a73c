//! GPU durations of kernels and graphs, by event pairs on the launch's own stream.
//!
//! A pair costs the CPU about 1.5 µs and the stream a few more, so what is timed is chosen
//! ([`Timing::decide`]): the first launches of a configuration after the very first (which may load
//! code), then ever fewer, until pairs take at most a thousandth of the kernel's own time (a
//! fiftieth of a collective's, from the start); and all of it within a token bucket that fills with
//! the budget's share of the process's time and may be overdrawn ([`budget`]). Where the GPU would
//! come to the first event before the second is recorded, a kernel of ours delays the stream
//! ([`lead`]), or the reading would hold the host's time for the launch; what the pair itself costs
//! is measured before ([`calibration`]). Pairs ([`pairs`]) are read when they are done, on later
//! timed launches, after synchronisations and at the end of the process, by the thread that made
//! them; nothing ever waits for them. [`guard`] says when events may be used at all.

mod budget;
mod calibration;
mod guard;
mod lead;
mod pairs;
mod pool;

use crate::limits;
use crate::objects::Objects;
use crate::switch::guarded;
use crate::tables::zeroed;
use apex_trace::Control;
use apex_trace::control::TimingMode;
use apex_trace::now;
use std::sync::atomic::Ordering::Relaxed;

use budget::{Budget, RESERVE_TICKS};
use calibration::Calibration;
use guard::{Guard, Section};
use pool::{Pools, State};

pub use budget::Progress;
pub use calibration::EMPTY_KERNEL_NS;
pub use guard::Pause;
pub use pairs::{Candidates, Pending, Sample};

/// The object that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A kernel's launch: its configuration.
    Kernel(u32),
    /// A graph's launch: its identifier.
    Graph(u32),
}

/// Launches after which a configuration that cannot be timed now is thought about again.
const LATER: u32 = 64;

/// Timing of a process.
pub struct Timing {
    objects: &'static Objects,
    control: &'static Control,
    budget: Budget,
    pools: Pools,
    guard: Guard,
    kernels: Box<[Progress]>,
    graphs: Box<[Progress]>,
}

/// The cost and result of calibrating a context.
pub struct Calibrated {
    /// Ticks that it took.
    pub ticks: u64,
    /// `None` if it failed.
    pub found: Option<Calibration>,
}

/// The decision about a launch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Decision {
    /// Whether to time it.
    pub now: bool,
    /// Launches of its configuration until the next decision.
    pub next_after: u32,
}

/// Whether every launch is to be timed.
#[inline(always)]
pub fn wants_all(control: &Control) -> bool {
    control.timing.load(Relaxed) == TimingMode::All as u32
}

/// Whether nothing is to be timed.
#[inline(always)]
pub fn is_off(control: &Control) -> bool {
    control.timing.load(Relaxed) == TimingMode::Off as u32
}

impl Timing {
    /// `None` if there is no memory for it.
    pub fn new(objects: &'static Objects, control: &'static Control) -> Option<Timing> {
        Some(Timing {
            objects,
            control,
            budget: Budget::new(),
            pools: Pools::new()?,
            guard: Guard::default(),
            kernels: zeroed(limits::CONFIGS + 1)?,
            graphs: zeroed(limits::GRAPHS + 1)?,
        })
    }

    fn section(&self) -> Option<Section<'_>> {
        self.guard.section(self.objects)
    }

    /// Stops timing, and waits until nobody is at it.
    pub fn pause(&'static self) -> Pause {
        self.guard.pause()
    }

    /// A capture has been announced: waits until no thread uses events.
    pub fn wait_for_sections(&self) {
        self.guard.wait_for_sections();
    }

    fn progress(&self, subject: Subject) -> Option<&Progress> {
        match subject {
            Subject::Kernel(config) => self.kernels.get(config as usize),
            Subject::Graph(graph) => self.graphs.get(graph as usize),
        }
    }

    /// The context is about to be destroyed. The caller holds a [`Pause`].
    pub fn forget_context(&self, context: u32) {
        self.pools.forget(context);
    }

    /// Some context is about to be destroyed. The caller holds a [`Pause`].
    pub fn forget_all_contexts(&self) {
        self.pools.forget_all();
    }

    /// Takes ticks that timing took out of the budget.
    pub fn spend(&self, ticks: u64) {
        self.budget.spend(ticks);
    }

    /// Whether [`Timing::prepare`] has something to do. Takes no lock.
    pub fn is_new(&self, context: u32) -> bool {
        context != 0 && !self.pools.has(context)
    }

    /// Called before a launch that may be the first in its context: calibrates if it is, for
    /// nothing can be running yet that waits for what the program does next.
    pub fn prepare(&self, context: u32) -> Option<Calibrated> {
        if self.is_new(context) && self.pools.add(context) { self.calibrate(context) } else { None }
    }

    /// Called when the current context has nothing to do: calibrates it if there was no moment to
    /// do so before.
    pub fn prepare_idle(&self, context: u32) -> Option<Calibrated> {
        let is_waiting = self.pools.state(context) == Some(State::Uncalibrated);
        if is_waiting { guarded(|| self.calibrate(context)).flatten() } else { None }
    }

    /// Whether it is decided for good whether the context's launches can be timed.
    pub fn is_settled(&self, context: u32) -> bool {
        self.pools.state(context).is_some_and(|state| state != State::Uncalibrated)
    }

    /// Calibrates the current context, which is idle, if it should be timed.
    fn calibrate(&self, context: u32) -> Option<Calibrated> {
        if self.control.timing_mode() == TimingMode::Off {
            return None;
        }
        let section = self.section()?;
        let begun = now();
        let found = calibration::measure();
        drop(section);
        self.pools.set_calibration(context, found);
        Some(Calibrated { ticks: now() - begun, found })
    }

    /// Launches of a configuration that a thread has just come to know until the first decision.
    /// The first launch of all is never timed, since it may load code.
    pub fn interval(&self, config: u32) -> u32 {
        self.progress(Subject::Kernel(config)).map_or(LATER, Progress::interval)
    }

    /// Whether to decide about a launch whose configuration the thread knew but has forgotten, and
    /// with it how many launches ago the last decision was: so these are counted for all threads
    /// together.
    pub fn is_due_when_met_again(&self, config: u32) -> bool {
        self.progress(Subject::Kernel(config)).is_some_and(|progress| {
            let met = progress.until.fetch_add(1, Relaxed);
            met.is_multiple_of(progress.interval())
        })
    }

    /// Notes that a configuration is one of a collective.
    pub fn set_collective(&self, config: u32) {
        if let Some(progress) = self.progress(Subject::Kernel(config)) {
            progress.set_collective();
        }
    }

    /// Whether launches of this are collectives.
    pub fn is_collective(&self, subject: Subject) -> bool {
        self.progress(subject).is_some_and(Progress::is_collective)
    }

    /// Decides whether to time a launch of `config` in `context`.
    pub fn decide(&self, config: u32, context: u32) -> Decision {
        self.decide_on(Subject::Kernel(config), context)
    }

    /// Whether a launch of the graph in `context`, which is not [new](Timing::is_new), is to be
    /// timed. The first is not: it may upload the graph.
    pub fn decide_graph(&self, graph: u32, context: u32) -> bool {
        let subject = Subject::Graph(graph);
        let Some(progress) = self.progress(subject) else { return false };
        let until = progress.until.load(Relaxed);
        if until > 1 && self.control.timing_mode() == TimingMode::Sampled || until == 0 {
            progress.until.store(until.max(2) - 1, Relaxed);
            return false;
        }
        let decision = self.decide_on(subject, context);
        progress.until.store(decision.next_after, Relaxed);
        decision.now
    }

    /// Whether graphs are timed at all.
    pub fn is_off(&self) -> bool {
        is_off(self.control)
    }

    fn decide_on(&self, subject: Subject, context: u32) -> Decision {
        let later = Decision { now: false, next_after: LATER };
        let Some(progress) = self.progress(subject) else { return later };
        let mode = self.control.timing_mode();
        if mode == TimingMode::Off || !matches!(self.pools.state(context), Some(State::Ready(_))) {
            return later;
        }
        if mode == TimingMode::All {
            return Decision { now: true, next_after: 1 };
        }
        let interval = progress.interval();
        let (reserve, later) = match progress.is_collective() {
            true => (RESERVE_TICKS, interval),
            false => (0, interval.max(LATER)),
        };
        if !self.budget.can_afford(self.control.budget_ppm.load(Relaxed), reserve) {
            return Decision { now: false, next_after: later };
        }
        progress.choose();
        Decision { now: true, next_after: interval }
    }
}
