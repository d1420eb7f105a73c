//! A profile of one phase: the same lists, with the events of that phase.

use std::collections::{BTreeSet, HashMap};

use apex_conventions::cpu_device;
use apex_trace::layout::MemoryKind;

use super::{Activity, AfterLaunch, Copies, Graph, Kernel, Launches, Profile, Sequence, Sizes};
use crate::accounts::{Accounts, IdleCause, PhaseCall, PhaseKind};
use crate::figure::Figure;
use crate::saturating::SaturatingSum as _;

impl Profile {
    /// Whether any device spends time in such a phase.
    pub fn has_phase(&self, kind: PhaseKind) -> bool {
        let mut phases = self.activities.iter().filter_map(|activity| activity.phase(kind));
        phases.any(|phase| phase.accounts.span_ns > 0.0)
    }

    /// The profile of a phase alone; `None` where no device has it. Time lines, kernels and totals
    /// are those of the phase; GPU times of kernels are what their launches in it take on average
    /// over the run. Of copies and other calls the phase has its counts, bytes and CPU time; of a
    /// sequence as many repetitions as of the launches of its kernels. How these spread and memory
    /// stay those of the whole run.
    pub fn in_phase(&self, kind: PhaseKind) -> Option<Self> {
        if !self.has_phase(kind) {
            return None;
        }
        let mut profile = self.clone();
        profile.activities = self.activities.iter().filter_map(|activity| activity.in_phase(kind)).collect();
        profile.keep_collectives(kind);
        let mut launches: HashMap<usize, u64> = HashMap::new();
        for &(kernel, count) in
            profile.activities.iter().flat_map(|activity| &activity.phases).flat_map(|phase| &phase.kernels)
        {
            *launches.entry(kernel).or_default() += count;
        }
        let kept = |kernel: usize| launches.get(&kernel).copied().unwrap_or(0);
        let by_graphs = profile.keep_graphs();
        for (index, kernel) in profile.kernels.iter_mut().enumerate() {
            kernel.keep_launches(kept(index), by_graphs.get(&index).copied().unwrap_or(0));
        }
        for sequence in &mut profile.sequences {
            let all =
                sequence.kernels.iter().map(|&kernel| self.kernels[kernel].launches.calls).saturating_sum();
            let kept = sequence.kernels.iter().map(|&kernel| kept(kernel)).saturating_sum();
            sequence.keep(kept as f64 / all.max(1) as f64);
        }
        profile.sequences.retain(|sequence| sequence.repeats > 0);
        let mean = |kernel: usize| Some(&self.kernels[kernel]).and_then(|kernel| Some((kernel, kernel.gpu?)));
        for activity in &mut profile.activities {
            let kernels = activity.phases.iter().flat_map(|phase| &phase.kernels);
            let kernels = kernels.filter_map(|&(kernel, count)| {
                let (kernel, gpu) = mean(kernel)?;
                Some(gpu.total_ns.scaled(count as f64 / kernel.launches.calls.max(1) as f64))
            });
            let process = activity.process;
            let graphs = activity.phases.iter().flat_map(|phase| &phase.graphs);
            let graphs = graphs.filter_map(|&(id, count)| {
                let graph = self.graphs.iter().find(|graph| (graph.process, graph.id) == (process, id))?;
                Some(graph.gpu?.total_ns.scaled(count as f64 / graph.launches.max(1) as f64))
            });
            activity.gpu_time_ns = Figure::sum(kernels.chain(graphs));
        }
        profile.keep_calls();
        let whole = &self.totals;
        let calls = |profile: &Self| profile.kernels.iter().map(|kernel| kernel.launches.calls).sum::<u64>();
        let share = calls(&profile) as f64 / calls(self).max(1) as f64;
        profile.totals.launches = calls(&profile);
        profile.totals.graph_launches = profile.graphs.iter().map(|graph| graph.launches).saturating_sum();
        profile.totals.graph_kernels =
            profile.kernels.iter().map(|kernel| kernel.launches.by_graphs).saturating_sum();
        profile.totals.launch_cpu_ns = whole.launch_cpu_ns * share;
        let mut totals = std::mem::take(&mut profile.totals);
        totals.sum_up(&profile);
        totals.wall_ns = whole.wall_ns;
        profile.totals = totals;
        Some(profile)
    }

    /// Of a process's collectives, counts those of the steady state, which is the end of the run.
    /// Those of other phases are not told from each other.
    fn keep_collectives(&mut self, kind: PhaseKind) {
        let Self { activities, collectives, .. } = self;
        for series in collectives.iter_mut().filter(|_| kind == PhaseKind::Steady) {
            let begins = activities
                .iter()
                .filter(|activity| activity.process == series.process)
                .filter_map(|activity| Some(activity.iterations.as_ref()?.start_ns));
            series.begin_at(begins.fold(0.0, f64::max));
        }
    }

    /// Keeps the launches of graphs in the phases that remain. Returns how often they ran each
    /// kernel.
    fn keep_graphs(&mut self) -> HashMap<usize, u64> {
        let Self { activities, graphs, .. } = self;
        let mut launches: HashMap<(usize, u32), u64> = HashMap::new();
        for activity in activities.iter() {
            for &(id, count) in activity.phases.iter().flat_map(|phase| &phase.graphs) {
                *launches.entry((activity.process, id)).or_default() += count;
            }
        }
        let mut by_graphs: HashMap<usize, u64> = HashMap::new();
        for graph in graphs.iter_mut() {
            graph.keep_launches(launches.get(&(graph.process, graph.id)).copied().unwrap_or(0));
            for &(kernel, nodes) in &graph.kernels {
                let runs = by_graphs.entry(kernel).or_default();
                *runs = runs.saturating_add(graph.launches.saturating_mul(nodes.into()));
            }
        }
        graphs.retain(|graph| graph.launches > 0);
        by_graphs
    }

    /// Leaves of the copies and calls those of the phases that are left.
    fn keep_calls(&mut self) {
        let Self { activities, calls, copies, .. } = self;
        // Calls are a process's: they are the same in each of its activities.
        let mut seen = BTreeSet::new();
        let first = activities.iter().filter(|activity| seen.insert(activity.process));
        let kept: Vec<&PhaseCall> =
            first.flat_map(|activity| &activity.phases).flat_map(|phase| &phase.calls).collect();
        let sum = |is: &dyn Fn(&PhaseCall) -> bool| {
            kept.iter().filter(|call| is(call)).fold((0u64, 0u64, 0.0), |(count, bytes, cpu), call| {
                (count.saturating_add(call.count), bytes.saturating_add(call.bytes), cpu + call.cpu_ns)
            })
        };
        for call in calls.iter_mut() {
            let (count, bytes, cpu_ns) = sum(&|kept| kept.name == call.name);
            (call.count, call.bytes, call.after_launch) = (count, bytes, AfterLaunch { count, cpu_ns });
            (call.cpu.count, call.cpu.total_ns) = (count, cpu_ns);
        }
        calls.retain(|call| call.count > 0);
        // Rows that differ in the kind of memory alone share what the phase has of both.
        let sort = |copy: &Copies| (copy.direction, is_pageable(copy), copy.asynchronous);
        let mut all: HashMap<_, u64> = HashMap::new();
        for copy in copies.iter() {
            let count = all.entry(sort(copy)).or_default();
            *count = count.saturating_add(copy.count);
        }
        for copy in copies.iter_mut() {
            let key @ (direction, pageable, asynchronous) = sort(copy);
            let is = |call: &PhaseCall| {
                (call.direction, call.pageable, call.asynchronous)
                    == (Some(direction), pageable, asynchronous)
            };
            let (count, bytes, cpu_ns) = sum(&is);
            let share = copy.count as f64 / all[&key].max(1) as f64;
            copy.sizes = Sizes::default();
            kept.iter().filter(|call| is(call)).for_each(|call| copy.sizes.merge(&call.sizes));
            if share < 1.0 {
                copy.sizes = copy.sizes.scaled(share);
            }
            copy.count = (count as f64 * share).round() as u64;
            copy.bytes = (bytes as f64 * share) as u64;
            copy.after_launch = AfterLaunch { count: copy.count, cpu_ns: cpu_ns * share };
            (copy.cpu.count, copy.cpu.total_ns) = (copy.count, cpu_ns * share);
        }
        copies.retain(|copy| copy.count > 0);
    }

    /// Whether no call of the host was recorded, of any device that was ever idle: a trace of
    /// another profiler may have the devices' work alone.
    pub fn lacks_calls(&self) -> bool {
        let mut causes = self.activities.iter().flat_map(|activity| activity.idle_by.keys()).peekable();
        causes.peek().is_some() && causes.all(|cause| *cause == IdleCause::Unrecorded)
    }

    /// Whether all devices are APEX's CPU device: times then say nothing about a GPU. Where a
    /// damaged session names no device, counts show it: only the CPU device counts.
    pub fn on_cpu_device(&self) -> bool {
        match &self.devices[..] {
            [] => self.kernels.iter().any(|kernel| kernel.counts.is_some()),
            devices => devices.iter().all(|device| cpu_device::is(&device.name)),
        }
    }

    /// Whether kernels ran on a device of which nothing is known, as in a damaged session: it may
    /// be a GPU or the CPU device.
    pub fn device_is_unknown(&self) -> bool {
        self.devices.is_empty() && self.totals.kernels_run() > 0 && !self.on_cpu_device()
    }

    /// Steps that all devices make, also in part; `None` unless each of them is in its steady state
    /// throughout.
    pub fn steps(&self) -> Option<f64> {
        let steps: Option<f64> = self.activities.iter().map(Activity::steps).sum();
        steps.filter(|steps| *steps > 0.0)
    }

    /// Returns the duration of a step, in nanoseconds: the mean over the steps of all devices
    /// ([`crate::Iterations::step_ns`]). Samples are the steps of the device that makes the most of
    /// them: those of several ranks go together. `None` where launches do not repeat.
    pub fn step_ns(&self) -> Option<Figure> {
        let loops = self.activities.iter().filter_map(|activity| activity.iterations.as_ref());
        let steps: Vec<Figure> = loops.map(|loops| loops.step_ns).collect();
        let count: u64 = steps.iter().map(|step| step.samples).saturating_sum();
        let most = steps.iter().map(|step| step.samples).max().filter(|&most| most > 0)?;
        let all = Figure::sum(steps.into_iter().map(|step| step.scaled(step.samples as f64)))?;
        Some(all.scaled(1.0 / count as f64).of_samples(most))
    }

    /// The accounts of all devices together.
    pub fn accounts(&self) -> Accounts {
        let mut sum = Accounts::default();
        self.activities.iter().for_each(|activity| sum.add(&activity.accounts));
        sum
    }
}

/// Whether pageable host memory is at one end.
fn is_pageable(copy: &Copies) -> bool {
    copy.source == MemoryKind::Pageable || copy.destination == MemoryKind::Pageable
}

impl Activity {
    /// A phase of this device.
    pub fn phase(&self, kind: PhaseKind) -> Option<&crate::Phase> {
        self.phases.iter().find(|phase| phase.kind == kind)
    }

    /// Computes the figures that follow from the accounts: idle time, if little enough is unknown.
    pub(crate) fn tell_idle_time(&mut self) {
        let accounts = &self.accounts;
        let known = accounts.span_ns > 0.0 && accounts.unknown_share() <= Self::MOST_UNKNOWN;
        self.idle_share = known.then(|| accounts.idle_ns().scaled(1.0 / accounts.span_ns).at_most(1.0));
        self.idle_by.clear();
        if known {
            let idle = accounts.idle.iter().map(|(&cause, time)| (cause, time.value));
            self.idle_by.extend(idle.filter(|(_, time)| *time > 0.0));
        } else {
            self.busy.clear();
        }
    }

    /// Whether there are long gaps in half of the iterations and more: what each of them waits for
    /// is no pause of the program, and is told with the rest of their idle time.
    fn gaps_recur(&self) -> bool {
        self.iterations.as_ref().is_some_and(|loops| 2 * self.long_gaps >= loops.count)
    }

    fn in_phase(&self, kind: PhaseKind) -> Option<Self> {
        let phase = self.phase(kind)?;
        let mut activity = Self {
            span_ns: phase.accounts.span_ns,
            launches: phase.launches,
            accounts: phase.accounts.clone(),
            gaps: match self.gaps_recur() {
                true => Vec::new(),
                false => self.gaps.iter().filter(|gap| gap.phase == kind).cloned().collect(),
            },
            busy: Vec::new(),
            over_time: None,
            launches_over_time: Vec::new(),
            ..self.clone()
        };
        activity.phases.retain(|phase| phase.kind == kind);
        activity.host_samples.retain(|samples| samples.phase == kind);
        activity.long_gaps = activity.gaps.len() as u64;
        activity.long_gaps_ns = activity.gaps.iter().map(|gap| gap.duration_ns.value).sum();
        activity.tell_idle_time();
        Some(activity)
    }
}

impl Sequence {
    /// Leaves this share of the repetitions, which are taken to be like all of them.
    fn keep(&mut self, share: f64) {
        self.repeats = (self.repeats as f64 * share).round() as u64;
        self.launch_cpu_ns *= share;
        self.elapsed_ns *= share;
    }
}

impl Graph {
    /// Keeps this number of launches, whose mean time is assumed to be that of all.
    fn keep_launches(&mut self, launches: u64) {
        let share = launches as f64 / self.launches.max(1) as f64;
        (self.launches, self.cpu.count) = (launches, launches);
        self.cpu.total_ns *= share;
        if let Some(gpu) = &mut self.gpu {
            gpu.total_ns = gpu.total_ns.scaled(share);
        }
    }
}

impl Kernel {
    /// Leaves nothing of its launches, nor what the CPU device counted of them.
    pub(crate) fn forget_launches(&mut self) {
        self.keep_launches(0, 0);
        self.launches = Launches::default();
        self.stacks.clear();
        (self.counts, self.prediction) = (None, None);
    }

    /// Keeps this number of launch calls, whose mean time is assumed to be that of all, and at most
    /// this number of runs by graphs.
    fn keep_launches(&mut self, calls: u64, by_graphs: u64) {
        let share = calls as f64 / self.launches.calls.max(1) as f64;
        self.launches.calls = calls;
        self.launches.by_graphs = self.launches.by_graphs.min(by_graphs);
        self.cpu.count = calls;
        self.cpu.total_ns *= share;
        self.slow_calls = if share < 1.0 { (0, 0.0) } else { self.slow_calls };
        if let Some(gpu) = &mut self.gpu {
            gpu.total_ns = gpu.total_ns.scaled(share);
        }
    }
}
