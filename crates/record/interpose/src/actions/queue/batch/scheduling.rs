//! Batches whose launches run concurrently if [`schedule`](crate::actions::schedule) says that they
//! share no data.
//!
//! The edges of a batch depend on its parameters, so each pattern of edges of a sequence has its
//! own graph, which is looked up by the pattern. A sequence that gains nothing rests: its next
//! batches are chains, which are always right, without a look at their edges.

use super::{MOST, Node};
use crate::actions::queue::wait::now_ns;
use crate::actions::schedule::edges::{Edges, spans};
use crate::actions::schedule::recent::{Recent, Version};
use crate::actions::schedule::trial::{Trials, Way};
use crate::actions::schedule::{self, Schedule};
use crate::objects::epochs;
use crate::tables::{put, spread};
use apex_trace::layout::{ScheduleFigures, ScheduleState};
use cuda_abi::types::*;
use launch_condition::{KernelAccess, Spans};
use std::collections::HashMap;
use std::sync::atomic::Ordering::Acquire;

/// Maximum number of remembered functions, and of remembered patterns of edges.
const MOST_REMEMBERED: usize = 1 << 12;
/// Maximum number of patterns of a sequence that have graphs.
const MOST_PATTERNS: u32 = 8;
/// The number of times that a pattern of edges must have come before it has a graph.
const SIGHTINGS: u32 = 2;
/// Looks at a sequence without a gain before it rests: they find out which patterns come.
const FIRST_LOOKS: u32 = 3;
/// The longest rest is this power of two, in batches.
const LONGEST_REST_POWER: u32 = 6;
/// Stands for a pattern that has graphs.
const ESTABLISHED: u32 = u32::MAX;

/// The graph as which a batch is launched.
#[derive(Clone, Copy)]
pub struct Plan {
    /// The key of the sequence of launches.
    pub sequence: u64,
    /// The key of the graph.
    pub key: u64,
    /// Its edges.
    pub edges: Edges,
    /// How it is launched.
    pub way: Way,
    /// The key of the sequence with this pattern of edges.
    pattern: u64,
}

impl Plan {
    /// One launch after the other.
    pub fn chain(sequence: u64) -> Plan {
        Plan { sequence, key: sequence, edges: Edges::CHAIN, way: Way::CHAIN, pattern: sequence }
    }

    /// Whether it is part of a trial.
    pub fn is_timed(&self) -> bool {
        self.way.is_timed
    }
}

/// See the [module](self).
pub struct Scheduling {
    schedule: &'static Schedule,
    trials: Trials,
    figures: ScheduleFigures,
    /// Kernels by function, in this epoch.
    kernels: HashMap<u64, Option<&'static KernelAccess>>,
    epoch: u32,
    /// By sequence, the number of its patterns that have graphs; by pattern, how often it came, or
    /// [`ESTABLISHED`].
    patterns: HashMap<u64, u32>,
    sightings: u32,
    recent: Recent,
    rests: HashMap<u64, Rest>,
    spans: Vec<Spans>,
    /// The host's time for the last plan.
    plan_ns: u64,
    state: ScheduleState,
}

/// The looks at a sequence that gained nothing, and for how many batches it is not looked at again.
#[derive(Clone, Copy, Default)]
struct Rest {
    looks: u32,
    left: u32,
}

impl Scheduling {
    /// `None` if this process does not schedule. With `is_forced`, all independent launches run
    /// concurrently, without trials.
    pub fn new(is_forced: bool) -> Option<Scheduling> {
        let mut spans = Vec::new();
        spans.try_reserve_exact(MOST).ok()?;
        Some(Scheduling {
            schedule: schedule::existing()?,
            trials: Trials::new(is_forced),
            figures: ScheduleFigures::default(),
            kernels: HashMap::new(),
            epoch: 0,
            patterns: HashMap::new(),
            sightings: if is_forced { 1 } else { SIGHTINGS },
            recent: Recent::default(),
            rests: HashMap::new(),
            spans,
            plan_ns: 0,
            state: ScheduleState::Unused,
        })
    }

    /// The graph as which consecutive launches are launched.
    pub fn plan(&mut self, sequence: u64, nodes: &[Node], now: u64) -> Plan {
        let chain = Plan::chain(sequence);
        if !self.schedule.is_open() || !self.trials.are_on(now) || self.rests(sequence) {
            return chain;
        }
        let begun = now_ns();
        let edges = self.edges(sequence, nodes);
        let plan = self.plan_of(edges, &chain, nodes.len(), now);
        self.plan_ns = now_ns().saturating_sub(begun);
        let way = plan.way;
        if way.has_branches {
            self.rests.remove(&sequence);
        } else if !way.is_timed {
            self.rest(sequence);
        }
        plan
    }

    /// The graph of `count` launches with these edges.
    fn plan_of(&mut self, edges: Edges, chain: &Plan, count: usize, now: u64) -> Plan {
        let sequence = chain.sequence;
        let pattern = match edges.number(count) {
            0 => return *chain,
            number => spread(sequence ^ number),
        };
        if !self.has_pattern(sequence, pattern) {
            return *chain;
        }
        let way = self.trials.way(pattern, now);
        if !self.trials.has_gained() && !self.trials.are_on(now) {
            self.set_state(ScheduleState::GainsNothing);
        }
        match way.has_branches {
            true => Plan { sequence, key: pattern, edges, way, pattern },
            false => Plan { way, pattern, ..*chain },
        }
    }

    /// Whether the next batch of a sequence is launched as a chain without a look at it.
    fn rests(&mut self, sequence: u64) -> bool {
        let Some(rest) = self.rests.get_mut(&sequence) else { return false };
        let rests = rest.left > 0;
        rest.left -= u32::from(rests);
        rests
    }

    /// A sequence has gained nothing.
    fn rest(&mut self, sequence: u64) {
        if self.trials.are_forced() {
            return;
        }
        if self.rests.len() >= MOST_REMEMBERED {
            self.rests.clear();
        }
        let looks = self.rests.get(&sequence).map_or(1, |rest| rest.looks.saturating_add(1));
        let left = match looks.checked_sub(FIRST_LOOKS) {
            Some(more @ 1..) => 1 << more.min(LONGEST_REST_POWER),
            _ => 0,
        };
        put(&mut self.rests, sequence, Rest { looks, left });
    }

    /// The edges of launches in a row.
    fn edges(&mut self, sequence: u64, nodes: &[Node]) -> Edges {
        let code = epochs().modules.load(Acquire);
        if code != self.epoch || self.kernels.len() >= MOST_REMEMBERED {
            self.kernels.clear();
            self.epoch = code;
        }
        let version = |memory: u64| Version { code, memory };
        let launches = nodes.iter().map(|node| (node.function, node.dimensions, node.bytes()));
        let now = version(self.schedule.memory().changes());
        let known = self.recent.edges(now, sequence, launches.clone());
        if let Some(edges) = known {
            return edges;
        }
        let mut kernels = [None; MOST];
        for (kernel, node) in kernels.iter_mut().zip(nodes) {
            *kernel = self.kernel(node.function);
        }
        self.spans.clear();
        let memory = self.schedule.memory();
        let version = version(memory.changes());
        self.spans.extend(nodes.iter().zip(kernels).map(|(node, kernel)| spans(node, kernel, &memory)));
        drop(memory);
        let edges = Edges::of(&self.spans);
        self.recent.keep(version, sequence, launches, edges);
        edges
    }

    fn kernel(&mut self, function: CUfunction) -> Option<&'static KernelAccess> {
        if let Some(known) = self.kernels.get(&(function as u64)) {
            return *known;
        }
        let kernel = self.schedule.kernel(function);
        put(&mut self.kernels, function as u64, kernel);
        kernel
    }

    /// Whether a pattern of edges is one of the few of its sequence that have graphs.
    fn has_pattern(&mut self, sequence: u64, pattern: u64) -> bool {
        let known = |patterns: &HashMap<u64, u32>, key| patterns.get(&key).copied().unwrap_or(0);
        let seen = known(&self.patterns, pattern).saturating_add(1);
        if seen == ESTABLISHED {
            return true;
        }
        if self.patterns.len() >= MOST_REMEMBERED {
            self.patterns.clear();
        }
        if seen < self.sightings {
            put(&mut self.patterns, pattern, seen);
            return false;
        }
        let count = known(&self.patterns, sequence) + 1;
        count <= MOST_PATTERNS
            && put(&mut self.patterns, sequence, count)
            && put(&mut self.patterns, pattern, ESTABLISHED)
    }

    /// Calls `launch`, which launches a graph of `count` launches; returns whether it succeeded.
    pub fn launch(
        &mut self,
        plan: &Plan,
        stream: CUstream,
        count: usize,
        launch: impl FnOnce() -> bool,
    ) -> bool {
        let Way { has_branches, is_timed, saved_ns } = plan.way;
        let is_launched = match is_timed {
            true => self.trials.timed(plan.pattern, has_branches, self.plan_ns, stream, launch),
            false => launch(),
        };
        if is_launched && has_branches {
            self.figures.batches += 1;
            self.figures.launches += count as u64;
            self.figures.saved_ns += saved_ns;
            self.schedule.file().set_schedule_figures(&self.figures);
            if self.trials.has_gained() {
                self.set_state(ScheduleState::On);
            }
        }
        is_launched
    }

    fn set_state(&mut self, state: ScheduleState) {
        if self.state != state {
            self.state = state;
            self.schedule.set_state(state);
        }
    }

    /// Forgets what it knows of functions and sequences.
    pub fn clear(&mut self) {
        self.kernels.clear();
        self.patterns.clear();
        self.recent.clear();
        self.rests.clear();
        self.trials.clear();
    }
}
