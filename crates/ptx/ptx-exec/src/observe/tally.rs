//! Counts the work of each instruction of a launch, and computes the sums.

use std::collections::BTreeMap;

use apex_counts::{
    Counts, Direction, Fault, Hotspot, InstructionClass, LineCounts, MAX_HOTSPOTS, Space, Traffic,
};

use crate::code::Op;
use crate::observe::lines::Lines;
use crate::observe::probe::Moment;
use crate::observe::request::requests;
use crate::observe::site::{Site, Sites};
use crate::observe::survey::{self, Spot};
use crate::operands::{AccessArgs, AccessKind};
use crate::registers::lanes::{WARP, each_lane};

/// The work of one instruction.
#[derive(Clone, Debug, Default)]
struct Tally {
    warps: u64,
    threads: u64,
    not_predicated_off: u64,
    divergent: u64,
    /// Threads of each atomic request at the address that most of them access.
    atomic_turns: u64,
    /// By space; a generic access may lead to several.
    traffic: [[Traffic; 3]; 3],
}

/// The tallies of all instructions of a launch, by function and step.
#[derive(Clone, Debug, Default)]
pub(super) struct Tallies {
    functions: BTreeMap<u32, Vec<Tally>>,
}

impl Tallies {
    /// Counts a step.
    pub(super) fn step(&mut self, moment: &Moment, sites: &[Site]) {
        let site = &sites[moment.pc as usize];
        if !site.counts {
            return;
        }
        let function = self.functions.entry(moment.function);
        let tally = &mut function.or_insert_with(|| vec![Tally::default(); sites.len()])[moment.pc as usize];
        let active = moment.lanes.mask;
        tally.warps += 1;
        tally.threads += u64::from(moment.mask.count_ones());
        match &moment.step.op {
            // The guard of a branch is its condition.
            Op::Jump { .. } => {
                tally.not_predicated_off += u64::from(moment.mask.count_ones());
                tally.divergent += u64::from(active != 0 && active != moment.mask);
            }
            op => {
                tally.not_predicated_off += u64::from(active.count_ones());
                match op {
                    Op::Access { args, .. } if matches!(args.kind, AccessKind::Bulk | AccessKind::Tensor) => {
                        tally.requests(moment)
                    }
                    Op::Matrix(_) => tally.requests(moment),
                    Op::Access { args, .. } if args.kind == AccessKind::Mbarrier => {}
                    Op::Access { args, .. } if active != 0 => tally.access(moment, site, args),
                    Op::JumpTable { index, .. } if active != 0 => {
                        // SAFETY: the frame has the registers of the step; an index is a word.
                        let index = unsafe { moment.lanes.source::<u32>(*index) };
                        let first = index[active.trailing_zeros() as usize];
                        let mut same = true;
                        each_lane(active, |lane| same &= index[lane] == first);
                        tally.divergent += u64::from(!same);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Adds what another worker has counted.
    pub(super) fn absorb(&mut self, other: Tallies) {
        for (function, tallies) in other.functions {
            let Some(sums) = self.functions.get_mut(&function) else {
                self.functions.insert(function, tallies);
                continue;
            };
            for (sum, more) in sums.iter_mut().zip(&tallies) {
                sum.warps += more.warps;
                sum.threads += more.threads;
                sum.not_predicated_off += more.not_predicated_off;
                sum.divergent += more.divergent;
                sum.atomic_turns += more.atomic_turns;
                let traffic = sum.traffic.iter_mut().flatten();
                traffic.zip(more.traffic.iter().flatten()).for_each(|(sum, more)| *sum += more);
            }
        }
    }

    /// Takes what was counted of `watched` instructions for all of `executed`.
    pub(super) fn scale(&mut self, executed: u64, watched: u64) {
        let scaled = |count: &mut u64| {
            let all = u128::from(*count) * u128::from(executed) / u128::from(watched.max(1));
            *count = all.try_into().unwrap_or(u64::MAX);
        };
        for tally in self.functions.values_mut().flatten() {
            let Tally { warps, threads, not_predicated_off, divergent, atomic_turns, traffic } = tally;
            [warps, threads, not_predicated_off, divergent, atomic_turns].into_iter().for_each(scaled);
            for Traffic { requests, threads, bytes, transactions, excess } in traffic.iter_mut().flatten() {
                [requests, threads, bytes, transactions, excess].into_iter().for_each(scaled);
            }
        }
    }

    /// The sums, the worst places, and the lines.
    pub(super) fn finish(&self, sites: &Sites) -> (Counts, Vec<Hotspot>, Lines) {
        let mut counts = Counts::default();
        let (mut spots, mut lines) = (Vec::new(), Lines::default());
        for (&function, tallies) in &self.functions {
            for (pc, (tally, site)) in tallies.iter().zip(sites.of_function(function)).enumerate() {
                if tally.warps > 0 {
                    tally.add_to(&mut counts, site);
                    lines.add(sites.line(function, pc as u32), &tally.of_line(site));
                    spots.extend(tally.hotspots().map(|spot| (spot, function, pc as u32)));
                }
            }
        }
        (counts, worst(spots, sites), lines)
    }
}

impl Tally {
    fn access(&mut self, moment: &Moment, site: &Site, args: &AccessArgs) {
        let Some((direction, bytes)) = site.access else { return };
        if args.kind == AccessKind::Copy {
            self.request(moment, &survey::sources(moment, args), Direction::Load, args.copied);
            self.request(moment, &survey::spots(moment, args), Direction::Store, args.copied);
        } else {
            self.request(moment, &survey::spots(moment, args), direction, bytes);
        }
    }

    /// Counts what a step asks of memory in several requests.
    fn requests(&mut self, moment: &Moment) {
        for request in requests(moment) {
            request.view(moment, |moment| {
                self.request(moment, &request.spots, request.direction, request.bytes);
            });
        }
    }

    /// Counts a request, in each space that it leads to.
    fn request(&mut self, moment: &Moment, spots: &[Spot; WARP], direction: Direction, bytes: u32) {
        for space in Space::ALL {
            let mut lanes = Vec::with_capacity(WARP);
            each_lane(moment.lanes.mask, |lane| {
                if spots[lane].space() == Some(space) {
                    lanes.push((lane, spots[lane].address()));
                }
            });
            if lanes.is_empty() {
                continue;
            }
            if direction == Direction::Atomic {
                self.atomic_turns += survey::turns(&lanes);
            }
            let cost = survey::cost(space, &lanes, bytes.into());
            let traffic = &mut self.traffic[space as usize][direction as usize];
            traffic.requests += 1;
            traffic.threads += lanes.len() as u64;
            traffic.bytes += lanes.len() as u64 * u64::from(bytes);
            traffic.transactions += cost.transactions;
            traffic.excess += cost.excess;
        }
    }

    /// The space that most of an access led to.
    fn class(&self, site: &Site) -> InstructionClass {
        let requests =
            |space: Space| self.traffic[space as usize].iter().map(|traffic| traffic.requests).sum();
        let [global, shared, local]: [u64; 3] = Space::ALL.map(requests);
        match site.class {
            InstructionClass::Global if shared > global.max(local) => InstructionClass::Shared,
            InstructionClass::Global if local > global => InstructionClass::Local,
            class => class,
        }
    }

    fn add_to(&self, counts: &mut Counts, site: &Site) {
        let class = self.class(site) as usize;
        counts.warp_instructions[class] += self.warps;
        counts.thread_instructions[class] += self.threads;
        counts.not_predicated_off += self.not_predicated_off;
        if let Some((width, operations)) = site.operations {
            counts.operations[width as usize] += self.not_predicated_off * u64::from(operations);
        }
        if site.branches {
            counts.branches += self.warps;
            counts.divergent_branches += self.divergent;
        }
        let sums = counts.traffic.iter_mut().flatten();
        sums.zip(self.traffic.iter().flatten()).for_each(|(sum, more)| *sum += more);
    }

    /// Its part of the counts of a line.
    fn of_line(&self, site: &Site) -> LineCounts {
        let [global, shared] = [Space::Global, Space::Shared].map(|space| self.all_traffic(space));
        LineCounts {
            warp_instructions: self.warps,
            thread_instructions: self.threads,
            global_requests: global.requests,
            global_sectors: global.transactions,
            global_excess: global.excess,
            shared_requests: shared.requests,
            shared_wavefronts: shared.transactions,
            shared_excess: shared.excess,
            atomic_turns: self.atomic_turns,
            branches: if site.branches { self.warps } else { 0 },
            divergent_branches: if site.branches { self.divergent } else { 0 },
        }
    }

    /// Traffic of a space in all directions.
    fn all_traffic(&self, space: Space) -> Traffic {
        let mut sum = Traffic::default();
        self.traffic[space as usize].iter().for_each(|traffic| sum += traffic);
        sum
    }

    /// Returns the inefficient accesses of the instruction: fault, events, total and excess.
    fn hotspots(&self) -> impl Iterator<Item = (Fault, u64, u64, u64)> {
        let of_space = |space: Space, fault| {
            let sum = self.all_traffic(space);
            (fault, sum.requests, sum.transactions, sum.excess)
        };
        [
            of_space(Space::Global, Fault::Uncoalesced),
            of_space(Space::Shared, Fault::BankConflict),
            (Fault::Divergence, self.warps, self.warps, self.divergent),
        ]
        .into_iter()
        .filter(|&(.., excess)| excess > 0)
    }
}

type RankedPlace = ((Fault, u64, u64, u64), u32, u32);

/// The worst places of each fault.
fn worst(mut spots: Vec<RankedPlace>, sites: &Sites) -> Vec<Hotspot> {
    spots.sort_by_key(|&((fault, _, _, excess), function, pc)| {
        (fault, std::cmp::Reverse(excess), function, pc)
    });
    let mut kept = [0; Fault::ALL.len()];
    spots.retain(|((fault, ..), ..)| {
        kept[*fault as usize] += 1;
        kept[*fault as usize] <= MAX_HOTSPOTS
    });
    let hotspots = spots.into_iter().map(|((fault, events, total, excess), function, pc)| Hotspot {
        fault,
        place: sites.place(function, pc),
        events,
        total,
        excess,
    });
    hotspots.collect()
}
