//! The cost of each memory access of a kernel, from its code alone.
//!
//! The code is executed from its first step to its last by one warp, as if no branch but those of
//! loops were taken: every access is met, loops have two rounds (the second has what the first
//! loaded), and registers hold what the code computes of the launch's threads and blocks. Arguments
//! are not known. Two trials replace them, one with all
//! numbers 1 and one with 32-bit numbers of [`LARGE`]: what both say follows from the code, and
//! what only the second says depends on a parameter. Pointers do not matter, because addresses
//! count relative to the lowest one of their warp.
//!
//! An address that depends on loaded data, or on a structure among the parameters, is not judged.

use super::code::{Access, Action, Register};
use super::value::{LANES, Value};
use super::warp::Warp;
use super::{Argument, Estimator, Shape};
use cuda_launch::LaunchConfig;
use ptx::Position;
use ptx::analysis::{MOST_TOUCHED, SECTOR};
use ptx::facts::{Lanes, Place, Probed};
use ptx::instruction::Direction;
use ptx::syntax::{Function, StateSpace};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A 32-bit parameter of the second trial: a typical number of columns.
const LARGE: u64 = 4096;
/// The position of the lowest address of a group: offsets may be negative.
const MIDDLE: u64 = 1 << 40;
/// Most steps of code that are looked at; further ones are not.
const MOST_STEPS: usize = 50_000;
/// Most steps that a trial executes.
const MOST_VISITS: usize = 4 * MOST_STEPS;

/// The result of one trial for an access.
#[derive(Clone, Copy)]
struct Trial {
    /// Its cost, and the least.
    known: Option<(u64, u64)>,
    uniform: bool,
    /// The accesses that it belongs to.
    group: Option<usize>,
    /// Whether these use all bytes of their sectors together.
    together: bool,
    /// Bytes from the address of each lane to that of the next, if they are all the same.
    lane_step: Option<i64>,
    /// The address of the first lane in the first round, without its offset.
    first: u64,
    /// Bytes from there to its address in the second round.
    round_step: Option<i64>,
}

/// An access of a kernel to global or shared memory, as one full warp makes it.
#[derive(Clone, Debug)]
pub struct Requested {
    /// Where it stands in the PTX.
    pub position: Position,
    /// The place in the source, if the module has lines.
    pub place: Option<Place>,
    /// Global or shared memory.
    pub space: StateSpace,
    /// Load, store or atomic.
    pub direction: Direction,
    /// Loops around it.
    pub depth: u32,
    /// Bytes of a lane.
    pub bytes: u32,
    /// Its cost; `None` if its addresses depend on data.
    pub cost: Option<RequestCost>,
}

/// The cost of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestCost {
    /// Sectors of global memory, or wavefronts of shared memory.
    pub count: u64,
    /// The least number for as many bytes.
    pub least: u64,
    /// Whether all lanes have one address.
    pub uniform: bool,
    /// Whether neighbouring accesses use the rest of its sectors: members of a structure.
    pub together: bool,
    /// Whether it depends on numbers among the parameters that are not known: it was counted with
    /// 4,096 in place of each.
    pub by_parameter: bool,
    /// Bytes from the address of each lane to that of the next, if they are all the same.
    pub lane_step: Option<i64>,
    /// Bytes that the address moves in each round of the innermost loop.
    pub round_step: Option<i64>,
}

impl Estimator {
    /// Returns each access to global, shared and constant memory in a launch of the kernel that
    /// this is the estimator of: what [`ptx::facts()`] asks for.
    pub fn probe(&self, kernel: &Function, launch: &LaunchConfig) -> Vec<Probed> {
        let bytes: Vec<u64> = kernel.params.iter().map(|parameter| parameter.bytes().unwrap_or(0)).collect();
        let [small, large] = [1, LARGE].map(|number| self.trial(launch, &filled(&bytes, &[], number)));
        let each = small.into_iter().filter_map(|(at, small)| Some((at, small, *large.get(&at)?)));
        each.filter_map(|(at, small, large)| {
            let Action::Access(access) = &self.code.steps[at].action else { return None };
            let space = access.space.filter(|space| *space != StateSpace::Local)?;
            let lanes = match (small.spread(), large.spread()) {
                _ if small.uniform && large.uniform => Lanes::One,
                (Some((a, least)), Some((b, _))) => Lanes::Known { cost: a.min(b), cost_if_large: b, least },
                _ => Lanes::Data,
            };
            let depth = self.loops.around(at).count() as u32;
            let place = self.code.steps[at].place;
            Some(Probed { space, direction: access.direction, depth, place, bytes: access.bytes, lanes })
        })
        .collect()
    }

    /// Returns what each access to global and shared memory asks for in a launch with these
    /// arguments, of which missing ones are unknown: by the first warp of the block in the middle,
    /// in the first round of each loop, in the order of the code. Global addresses count from the
    /// lowest one of the warp, as if that were aligned.
    pub fn requests(
        &self,
        kernel: &Function,
        launch: &LaunchConfig,
        arguments: &[Argument],
    ) -> Vec<Requested> {
        let bytes: Vec<u64> = kernel.params.iter().map(|parameter| parameter.bytes().unwrap_or(0)).collect();
        let [small, large] = [1, LARGE].map(|number| self.trial(launch, &filled(&bytes, arguments, number)));
        let one = |(at, large): (usize, Trial)| {
            let step = &self.code.steps[at];
            let Action::Access(access) = &step.action else { return None };
            let has_requests = |space: &StateSpace| matches!(space, StateSpace::Global | StateSpace::Shared);
            let space = access.space.filter(has_requests)?;
            let small = small.get(&at).and_then(|small| small.known);
            Some(Requested {
                position: step.position,
                place: step.place,
                space,
                direction: access.direction,
                depth: self.loops.around(at).count() as u32,
                bytes: access.bytes,
                cost: small.and_then(|(small, _)| large.cost(small)),
            })
        };
        large.into_iter().filter_map(one).collect()
    }

    /// Goes through the code once.
    fn trial(&self, launch: &LaunchConfig, arguments: &[Argument]) -> BTreeMap<usize, Trial> {
        let shape = Shape::of(launch);
        let mut warp = Warp::new(&self.code, &self.loops, &[]);
        // What a step reads that no step before it wrote is a value of another round or path.
        warp.registers.fill(Value { guessed: true, ..Value::uniform(0) });
        self.load(&mut warp.registers, &shape, arguments);
        let live = self.place(&mut warp.registers, &shape, shape.blocks / 2, 0);
        warp.begin_all(live);
        let mut groups = Groups::default();
        let mut told: BTreeMap<usize, Trial> = BTreeMap::new();
        for at in self.rounds() {
            let step = &self.code.steps[at];
            if let Action::Access(access) = &step.action {
                let base = &warp.registers[access.address as usize];
                match told.get_mut(&at) {
                    // What a further round knows less of depends on what was loaded.
                    Some(known) => {
                        known.uniform &= base.uniform;
                        known.known = known.known.filter(|_| !base.guessed);
                        let step = base.lane(0).wrapping_sub(known.first) as i64;
                        known.round_step.get_or_insert(step);
                    }
                    None => {
                        told.insert(at, groups.ask(access, base, live));
                    }
                }
            }
            warp.execute(at, &step.action, live);
            step.action.writes(|register| {
                groups.open.remove(&register);
            });
        }
        told.values_mut().for_each(|trial| groups.spread(trial));
        told
    }

    /// The steps in their order, those of each loop twice.
    fn rounds(&self) -> impl Iterator<Item = usize> {
        let steps = self.code.steps.len().min(MOST_STEPS);
        let mut ends: HashMap<usize, Vec<usize>> = HashMap::new();
        for found in self.loops.loops.iter().filter(|found| found.last < steps) {
            ends.entry(found.last).or_default().push(found.first);
        }
        let mut open = ends.clone();
        let next = move |&at: &usize| {
            // Loops inside are gone through anew in each round of those around them.
            match open.get_mut(&at).and_then(Vec::pop) {
                Some(first) => {
                    let inside = ends.iter().filter(|(last, _)| (first..at).contains(last));
                    open.extend(inside.map(|(&last, firsts)| (last, firsts.clone())));
                    Some(first)
                }
                None => Some(at + 1).filter(|&next| next < steps),
            }
        };
        std::iter::successors(Some(0).filter(|_| steps > 0), next).take(MOST_VISITS)
    }
}

/// The arguments of a trial: `given` ones as they are, this in place of other numbers.
fn filled(bytes: &[u64], given: &[Argument], number: u64) -> Vec<Argument> {
    let argument = |(index, &bytes): (usize, &u64)| match (given.get(index), bytes) {
        (Some(known), _) if *known != Argument::Unknown => known.clone(),
        (_, 8) => Argument::Bits(1),
        (_, 1..8) => Argument::Bits(number),
        _ => Argument::Unknown,
    };
    bytes.iter().enumerate().map(argument).collect()
}

impl Trial {
    /// Its cost and the least, where accesses that use their sectors together cost the least.
    fn spread(&self) -> Option<(u64, u64)> {
        self.known.map(|(cost, least)| (if self.together { least } else { cost }, least))
    }

    /// Its cost, which was `small` where numbers were small.
    fn cost(&self, small: u64) -> Option<RequestCost> {
        let (count, least) = self.known?;
        Some(RequestCost {
            count,
            least,
            uniform: self.uniform,
            together: self.together,
            by_parameter: count != small,
            lane_step: self.lane_step,
            round_step: self.round_step,
        })
    }
}

/// Bytes from each active lane to the next, if they are all the same.
fn lane_step(base: &Value, live: u32) -> Option<i64> {
    let live: Vec<u64> =
        (0..LANES).filter(|lane| live >> lane & 1 == 1).map(|lane| base.lane(lane)).collect();
    let mut steps = live.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]) as i64);
    let first = steps.next()?;
    steps.all(|step| step == first).then_some(first)
}

/// Accesses of one address register at several offsets: members of structures, unrolled rounds.
#[derive(Default)]
struct Group {
    base: u64,
    sectors: BTreeSet<u64>,
    bytes: u64,
}

#[derive(Default)]
struct Groups {
    all: Vec<Group>,
    /// By the register, until it is written.
    open: HashMap<Register, usize>,
}

impl Groups {
    /// Computes the cost of an access.
    fn ask(&mut self, access: &Access, base: &Value, live: u32) -> Trial {
        let mut addresses = base.clone();
        addresses.lanes.iter_mut().for_each(|lane| *lane = lane.wrapping_add_signed(access.offset));
        let (uniform, bytes) = (base.uniform, u64::from(access.bytes));
        let unknown = Trial {
            known: None,
            uniform,
            group: None,
            together: false,
            lane_step: None,
            first: base.lane(0),
            round_step: None,
        };
        if base.guessed {
            return unknown;
        }
        let live = if access.lanes < LANES as u32 { live & ((1 << access.lanes) - 1) } else { live };
        // (Pointers are small numbers here, so that addresses below them are negative.)
        let lanes = (0..LANES).filter(|lane| live >> lane & 1 == 1);
        let first = lanes.map(|lane| base.lane(lane) as i64).min().map(i64::cast_unsigned);
        let request = addresses.request(live, bytes);
        let trial = Trial { lane_step: lane_step(base, live), ..unknown };
        match access.space {
            Some(StateSpace::Shared) => {
                let found = request.wavefronts();
                Trial { known: Some((found.count, found.count - found.excessive)), ..trial }
            }
            Some(StateSpace::Const) => Trial { known: Some((request.distinct_addresses(), 1)), ..trial },
            _ => {
                let index = *self.open.entry(access.address).or_insert_with(|| {
                    self.all.push(Group { base: first.unwrap_or(0), ..Group::default() });
                    self.all.len() - 1
                });
                let group = &mut self.all[index];
                let from = group.base;
                let lanes = addresses.lanes.iter_mut();
                lanes.for_each(|lane| *lane = lane.wrapping_sub(from).wrapping_add(MIDDLE));
                let request = addresses.request(live, bytes);
                let mut touched = [0; MOST_TOUCHED];
                let count = if uniform { 0 } else { request.touched(&mut touched) };
                group.sectors.extend(&touched[..count]);
                group.bytes += bytes * u64::from(live.count_ones());
                Trial {
                    known: Some((request.sectors(), request.least_sectors())),
                    group: Some(index),
                    ..trial
                }
            }
        }
    }

    /// Marks accesses that use all bytes of their sectors together: none of them is excessive.
    fn spread(&self, trial: &mut Trial) {
        let Some(group) = trial.group.map(|index| &self.all[index]) else { return };
        trial.together = group.bytes.div_ceil(SECTOR) * 2 > group.sectors.len() as u64;
    }
}
