//! Measures whether a sequence gains if its launches run concurrently.
//!
//! The first batches of a sequence are launched in two ways in turn, as a chain and with branches,
//! each between two events. Then branches stay if their median is clearly lower, and by more than
//! they take the host longer: otherwise a program that waits for the host would lose. Without that,
//! the chain stays. While nothing is known to gain, the trials of all sequences together take at
//! most [`MOST_NS`]; then scheduling is off for a second, and twice as long after each further
//! round without a gain.

use crate::actions::queue::wait::now_ns;
use crate::driver::{create_event, destroy_event, elapsed_ns, record_event};
use crate::tables::{push, put};
use cuda_abi::types::*;
use std::collections::HashMap;

/// Timed batches of each way after which a sequence is decided.
const ENOUGH: usize = 8;
/// The same where time is up.
const FEW: usize = 3;
/// Share by which branches have to be faster, percent.
const LEAST_GAIN_PERCENT: u64 = 2;
/// Longest time of trials without a gain, nanoseconds.
const MOST_NS: u64 = 100_000_000;
/// The pauses of scheduling in nanoseconds: the first, and the longest.
const PAUSE_NS: [u64; 2] = [1_000_000_000, 16_000_000_000];
/// Most sequences that are decided, or being tried.
const MOST_TRIALS: usize = 1 << 10;
/// Most event pairs that wait to be read.
const MOST_PENDING: usize = 32;

/// See the [module](self). Times are nanoseconds.
#[derive(Default)]
pub struct Trials {
    /// Everything runs beside what it may, untimed.
    is_forced: bool,
    trials: HashMap<u64, Trial>,
    pending: Vec<Pending>,
    free: Vec<[CUevent; 2]>,
    /// When trials began without a gain since, 0 if none did.
    begun: u64,
    on_from: u64,
    pause_ns: u64,
    has_gained: bool,
}

/// A sequence: the times of its two ways, or what was decided.
#[derive(Default)]
struct Trial {
    uses: u32,
    /// The time of batches on the GPU, and of the host's calls that launch them, as a chain and
    /// with branches.
    ns: [Vec<u64>; 2],
    call_ns: [Vec<u64>; 2],
    /// The host's time to find out that launches may run with branches.
    plan_ns: Vec<u64>,
    /// What a batch saves with branches; 0 if it is launched as a chain.
    decided: Option<u64>,
}

/// A batch that the GPU may not have run yet.
struct Pending {
    key: u64,
    has_branches: bool,
    events: [CUevent; 2],
}

// SAFETY: events, which the driver takes from any thread.
unsafe impl Send for Trials {}

/// The way in which a batch is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// With branches, or as a chain.
    pub has_branches: bool,
    /// Whether it is timed.
    pub is_timed: bool,
    /// What is saved, where that is known.
    pub saved_ns: u64,
}

impl Way {
    /// As without scheduling.
    pub const CHAIN: Way = Way { has_branches: false, is_timed: false, saved_ns: 0 };
}

impl Trials {
    /// None yet. All sequences have branches if `is_forced`.
    pub fn new(is_forced: bool) -> Trials {
        Trials { is_forced, ..Trials::default() }
    }

    /// Whether batches are looked at at all.
    pub fn are_on(&self, now: u64) -> bool {
        self.is_forced || now >= self.on_from
    }

    /// Whether everything runs beside what it may, without trials.
    pub fn are_forced(&self) -> bool {
        self.is_forced
    }

    /// Whether a trial has shown a gain, or all were forced to.
    pub fn has_gained(&self) -> bool {
        self.has_gained || self.is_forced
    }

    /// The way of the next batch of a sequence.
    pub fn way(&mut self, key: u64, now: u64) -> Way {
        if self.is_forced {
            return Way { has_branches: true, ..Way::CHAIN };
        }
        self.read_events();
        if self.trials.len() >= MOST_TRIALS && !self.trials.contains_key(&key) {
            self.trials.clear();
        }
        if !self.trials.contains_key(&key) && !put(&mut self.trials, key, Trial::default()) {
            return Way::CHAIN;
        }
        if self.begun == 0 && !self.has_gained {
            self.begun = now;
        }
        let is_late = !self.has_gained && now.saturating_sub(self.begun) >= MOST_NS;
        let Some(trial) = self.trials.get_mut(&key) else { return Way::CHAIN };
        trial.decide(if is_late { FEW } else { ENOUGH });
        let way = trial.next();
        self.has_gained |= trial.decided.is_some_and(|saved| saved > 0);
        if is_late && !self.has_gained {
            self.pause(now);
        }
        way
    }

    /// Trials took long and showed no gain.
    fn pause(&mut self, now: u64) {
        self.pause_ns = (self.pause_ns * 2).clamp(PAUSE_NS[0], PAUSE_NS[1]);
        (self.on_from, self.begun) = (now + self.pause_ns, 0);
        self.trials.clear();
    }

    /// Launches by `launch` between two events; whether it succeeded. To find out that launches may
    /// run with branches took the host `plan_ns`.
    pub fn timed(
        &mut self,
        key: u64,
        has_branches: bool,
        plan_ns: u64,
        stream: CUstream,
        launch: impl FnOnce() -> bool,
    ) -> bool {
        let events = if self.pending.len() < MOST_PENDING { self.events() } else { None };
        let Some(events) = events else { return launch() };
        let has_begun = record_event(events[0], stream);
        let begun = now_ns();
        let is_launched = launch();
        if let Some(trial) = self.trials.get_mut(&key) {
            push(&mut trial.call_ns[usize::from(has_branches)], now_ns().saturating_sub(begun));
            if has_branches {
                push(&mut trial.plan_ns, plan_ns);
            }
        }
        if has_begun && is_launched && record_event(events[1], stream) {
            push(&mut self.pending, Pending { key, has_branches, events });
        } else {
            push(&mut self.free, events);
        }
        is_launched
    }

    fn events(&mut self) -> Option<[CUevent; 2]> {
        self.free.pop().or_else(|| Some([create_event()?, create_event()?]))
    }

    /// Reads the events that the GPU has passed.
    fn read_events(&mut self) {
        let Trials { pending, free, trials, .. } = self;
        pending.retain(|Pending { key, has_branches, events }| {
            let elapsed = elapsed_ns(events[0], events[1]);
            if let (Ok(ns), Some(trial)) = (elapsed, trials.get_mut(key)) {
                push(&mut trial.ns[usize::from(*has_branches)], ns);
            }
            let waits = elapsed == Err(true);
            if !waits {
                push(free, *events);
            }
            waits
        });
    }

    /// Forgets sequences and events: a context ends.
    pub fn clear(&mut self) {
        let pending = self.pending.drain(..).map(|pending| pending.events);
        pending.chain(self.free.drain(..)).flatten().for_each(destroy_event);
        self.trials.clear();
    }
}

impl Trial {
    fn next(&mut self) -> Way {
        if let Some(saved_ns) = self.decided {
            return Way { has_branches: saved_ns > 0, is_timed: false, saved_ns };
        }
        self.uses += 1;
        // Chain, branches, branches, chain.
        Way { has_branches: matches!(self.uses % 4, 2 | 3), is_timed: true, saved_ns: 0 }
    }

    fn decide(&mut self, enough: usize) {
        if self.decided.is_some() || self.ns.iter().any(|times| times.len() < enough) {
            return;
        }
        let [chain, branches] = [0, 1].map(|way| median(&mut self.ns[way]));
        let is_faster = branches * 100 < chain * (100 - LEAST_GAIN_PERCENT);
        // A call waits while the GPU is full, which says nothing about its cost: the shortest ones
        // do not, or wait alike.
        let [call_chain, call_branches] =
            [0, 1].map(|way: usize| self.call_ns[way].iter().copied().min().unwrap_or(0));
        let host_ns = call_branches.saturating_sub(call_chain) + median(&mut self.plan_ns);
        let saved_ns = if is_faster { (chain - branches).saturating_sub(host_ns) } else { 0 };
        self.decided = Some(saved_ns);
        (self.ns, self.call_ns, self.plan_ns) = Default::default();
    }
}

fn median(times: &mut [u64]) -> u64 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Batches that take so long as a chain and with branches: the ways of the first ones.
    fn tried(chain_ns: u64, branches_ns: u64, batches: usize, step_ns: u64) -> (Trials, Vec<Way>) {
        tried_on([chain_ns, branches_ns], [1000, 1000], batches, step_ns)
    }

    /// The same, and they take the host so long.
    fn tried_on(gpu_ns: [u64; 2], host_ns: [u64; 2], batches: usize, step_ns: u64) -> (Trials, Vec<Way>) {
        let mut trials = Trials::new(false);
        let ways = (0..batches as u64).map(|number| {
            let now = 1 + number * step_ns;
            if !trials.are_on(now) {
                return Way::CHAIN;
            }
            let way = trials.way(7, now);
            if let (true, Some(trial)) = (way.is_timed, trials.trials.get_mut(&7)) {
                let at = usize::from(way.has_branches);
                trial.ns[at].push(gpu_ns[at]);
                // Some calls wait for the GPU.
                let waits = if trial.call_ns[at].len() % 3 == 1 { gpu_ns[0] } else { 0 };
                trial.call_ns[at].push(host_ns[at] + waits);
                trial.plan_ns.push(0);
            }
            way
        });
        let ways = ways.collect();
        (trials, ways)
    }

    #[test]
    fn the_faster_way_stays() {
        let (trials, ways) = tried(1000, 700, 20, 1000);
        assert!(ways[..16].iter().all(|way| way.is_timed) && trials.has_gained());
        assert_eq!(ways[19], Way { has_branches: true, is_timed: false, saved_ns: 300 });
        for branches_ns in [990, 1000, 2000] {
            let (trials, ways) = tried(1000, branches_ns, 20, 1000);
            assert_eq!((ways[19], trials.has_gained()), (Way::CHAIN, false));
        }
    }

    #[test]
    fn what_costs_the_host_more_than_the_gpu_saves_stays_a_chain() {
        let (trials, ways) = tried_on([1000, 700], [100, 400], 20, 1000);
        assert_eq!((ways[19], trials.has_gained()), (Way::CHAIN, false));
        let (trials, ways) = tried_on([1000, 700], [100, 150], 20, 1000);
        assert_eq!((ways[19].saved_ns, trials.has_gained()), (250, true));
        let trial = |plan_ns| Trial {
            ns: [vec![1000; 8], vec![700; 8]],
            plan_ns: vec![plan_ns; 8],
            ..Trial::default()
        };
        let decided = [10, 400].map(trial).map(|mut trial| {
            trial.decide(ENOUGH);
            trial.decided
        });
        assert_eq!(decided, [Some(290), Some(0)], "what planning takes counts");
    }

    #[test]
    fn without_a_gain_it_is_off_after_a_tenth_of_a_second() {
        let (trials, ways) = tried(20 * MS, 20 * MS, 40, 20 * MS);
        let tried = ways.iter().filter(|way| way.is_timed).count();
        assert!(tried <= 6, "{tried}");
        assert!(!trials.are_on(1000 * MS) && trials.are_on(1200 * MS));
        let (trials, ways) = tried_with_gain();
        assert!(trials.has_gained() && ways[30].has_branches, "a few long batches are enough");
    }

    fn tried_with_gain() -> (Trials, Vec<Way>) {
        tried(17 * MS, 9 * MS, 40, 17 * MS)
    }

    #[test]
    fn forced_branches_are_not_tried() {
        let mut trials = Trials::new(true);
        assert_eq!(trials.way(1, 5), Way { has_branches: true, ..Way::CHAIN });
        assert!(trials.are_on(0) && trials.has_gained());
    }
}
