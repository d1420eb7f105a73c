//! The share of the host's time at a place that launching takes.
//!
//! A launch-bound program spends its idle time at the lines that launch, and a finding that calls
//! these lines slow misses the cause: there are too many launches. So each line is held against the
//! driver calls that come from it. A line that makes no call does not launch. A line that makes
//! some launches for as long as a framework needs for them; what remains is work of its own, as far
//! as samples found it in code that is neither the line itself nor a framework: an operation that
//! is written in C has no frame of Python.

use std::collections::BTreeMap;

use super::super::host_bound::EACH_NS;
use super::super::launch_bound::OWN_CODE_NS;
use apex_knowledge::Framework;
use apex_profile::{Figure, Frame, HostStack, IdlePlace, Profile, Site, StackCount};
use apex_trace::layout::CallClass;

/// Driver calls that queue work, and their CPU time.
#[derive(Clone, Copy, Default)]
struct Sum {
    count: f64,
    cpu_ns: f64,
}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.count += other.count;
        self.cpu_ns += other.cpu_ns;
    }

    fn scaled(self, by: f64) -> Self {
        Self { count: self.count * by, cpu_ns: self.cpu_ns * by }
    }
}

/// The calls of a program that queue work, by the user's line that makes them.
pub(super) struct Queued<'p> {
    by_line: BTreeMap<&'p Frame, Sum>,
    /// Of threads without such a line: a backward pass, a thread pool.
    of_no_line: Sum,
}

impl<'p> Queued<'p> {
    /// The calls of this profile; `None` where no call stack was read.
    pub fn of(profile: &'p Profile) -> Option<Self> {
        if profile.call_stacks.is_empty() {
            return None;
        }
        let mut queued = Self { by_line: BTreeMap::new(), of_no_line: Sum::default() };
        for kernel in &profile.kernels {
            let sum = Sum { count: kernel.launches.calls as f64, cpu_ns: kernel.cpu.total_ns };
            queued.divide(profile, &kernel.stacks, sum);
        }
        for graph in &profile.graphs {
            let sum = Sum { count: graph.launches as f64, cpu_ns: graph.cpu.total_ns };
            queued.divide(profile, &graph.stacks, sum);
        }
        let queues = |class| matches!(class, Some(CallClass::Copy | CallClass::Set));
        for call in profile.calls.iter().filter(|call| queues(call.class)) {
            let sum = Sum { count: call.after_launch.count as f64, cpu_ns: call.after_launch.cpu_ns };
            queued.divide(profile, &call.stacks, sum);
        }
        Some(queued)
    }

    /// Divides calls among their lines, as their samples are. Where none was sampled, each line may
    /// have made all of them.
    fn divide(&mut self, profile: &'p Profile, stacks: &[StackCount], sum: Sum) {
        let sites = profile.sites(stacks);
        if sites.is_empty() {
            self.of_no_line.add(sum);
        }
        for site in sites {
            let line = match site.site {
                Site::Line(line) | Site::Through { python: line, .. } if !line.is_of_library() => Some(line),
                _ => None,
            };
            let of = line.map_or(&mut self.of_no_line, |line| self.by_line.entry(line).or_default());
            of.add(sum.scaled(site.share.unwrap_or(1.0)));
        }
    }

    /// The calls that a place may make.
    fn at(&self, place: &IdlePlace<'_>) -> Sum {
        let mut sum = place.line().and_then(|line| self.by_line.get(line)).copied().unwrap_or_default();
        let is_backward = |stack: &HostStack| stack.frames.iter().any(|f| f.frame.file.contains(AUTOGRAD));
        if place.is_of_other || place.share_of_samples(is_backward) > 0.5 {
            sum.add(self.of_no_line);
        }
        sum
    }

    /// Idle time at a place that launching does not explain.
    pub fn own_work(&self, place: &IdlePlace<'_>) -> Figure {
        let (time, calls) = (place.time.value, self.at(place));
        if time > EACH_NS * calls.count {
            return place.time;
        }
        let beside = (time - OWN_CODE_NS * calls.count - calls.cpu_ns).max(0.0);
        let own = beside.min(time * place.share_of_samples(is_other_code));
        place.time.scaled(own / time.max(1.0))
    }
}

/// The folder of the functions that wait for a backward pass.
const AUTOGRAD: &str = "/torch/autograd/";

/// Whether the innermost function of Python is a library's that no framework has.
fn is_other_code(stack: &HostStack) -> bool {
    let innermost = stack.frames.iter().find(|frame| !frame.is_native);
    innermost.is_some_and(|frame| frame.is_of_library() && Framework::of_file(&frame.frame.file).is_none())
        && stack.is_settled
}
