//! Values that nobody has defined: the bits of registers, and the place where each was loaded.
//!
//! A load of bytes that nobody has written makes its registers undefined, bit by bit. What is
//! computed from them is found by trial: the step is executed on copies of its registers, once as
//! they are and then with other values in the undefined bits; a bit of a result is undefined if it
//! differs. So a value that a selection or a mask discards is defined again, whatever the
//! instruction. A dependence that no trial shows is missed; none is invented.

use std::collections::HashMap;

use crate::code::{Op, Step};
use crate::observe::StepId;
use crate::observe::probe::Moment;
use crate::observe::survey::Spot;
use crate::operands::{Class, Guard, Reg, Role};
use crate::registers::lanes::{Lanes, WARP, each_lane};
use crate::registers::{Long, Word};
use crate::warp::exchange;

/// Trials with random values in the undefined bits.
const RANDOM_TRIALS: u64 = 6;

/// The load that an undefined value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) place: StepId,
    pub(super) spot: Spot,
    pub(super) bytes: u32,
    /// The start of the loading function's frame in local memory.
    pub(super) frame: u32,
}

/// The treatment of an undefined value since it was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Treatment {
    /// It was moved: a copy of memory, with its padding and the members of a union that are unset.
    #[default]
    Copied,
    /// Its bits were selected, masked or shifted, as compilers do with members and bit fields.
    Arranged,
    /// It took part in a computation or decided one.
    Computed,
}

/// An undefined value in memory.
#[derive(Clone, Copy)]
pub(super) struct Stored {
    /// The index of its origin.
    pub(super) origin: u32,
    pub(super) treatment: Treatment,
    /// A mask of its undefined bits.
    pub(super) bits: u64,
    pub(super) bytes: u32,
}

/// The undefined part of a register.
#[derive(Clone, Copy)]
pub(super) struct Undefined {
    /// For each lane the bits.
    pub(super) bits: [u64; WARP],
    /// For each lane with such bits the index of its origin.
    pub(super) origins: [u32; WARP],
    /// For each lane with such bits what was done with them.
    pub(super) treatments: [Treatment; WARP],
}

impl Undefined {
    pub(super) const NOTHING: Undefined =
        Undefined { bits: [0; WARP], origins: [0; WARP], treatments: [Treatment::Copied; WARP] };

    /// The lanes of `mask` in which any of the bits `wanted` is undefined.
    pub(super) fn lanes(&self, mask: u32, wanted: u64) -> u32 {
        let mut found = 0;
        each_lane(mask, |lane| found |= u32::from(self.bits[lane] & wanted != 0) << lane);
        found
    }
}

/// A register of a warp: its class and index, counted through all frames.
type RegisterKey = (u32, Class, u32);

/// The undefined registers of a block.
#[derive(Default)]
pub(super) struct Values {
    registers: HashMap<RegisterKey, Box<Undefined>>,
    origins: Vec<Origin>,
    known: HashMap<(StepId, u32), u32>,
}

impl Values {
    /// Whether nothing is undefined, which is the rule.
    pub(super) fn is_empty(&self) -> bool {
        self.registers.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.registers.clear();
        self.origins.clear();
        self.known.clear();
    }

    pub(super) fn origin(&self, index: u32) -> Origin {
        self.origins[index as usize]
    }

    /// The index of what `thread` loads now.
    pub(super) fn add_origin(&mut self, thread: u32, origin: Origin) -> u32 {
        let next = self.origins.len() as u32;
        let index = *self.known.entry((origin.place, thread)).or_insert(next);
        match self.origins.get_mut(index as usize) {
            Some(known) => *known = origin,
            None => self.origins.push(origin),
        }
        index
    }

    /// Returns the undefined part of a register of the step's frame.
    pub(super) fn undefined_part(&self, moment: &Moment, class: Class, reg: Reg) -> Option<&Undefined> {
        self.registers.get(&place(moment, class, reg)).map(|found| &**found)
    }

    /// The lanes of `mask` get what `undefined` says of them.
    pub(super) fn set(
        &mut self,
        moment: &Moment,
        class: Class,
        reg: Reg,
        mask: u32,
        undefined: Option<&Undefined>,
    ) {
        let key = place(moment, class, reg);
        let Some(undefined) = undefined else {
            if let Some(found) = self.registers.get_mut(&key) {
                each_lane(mask, |lane| found.bits[lane] = 0);
                if found.bits == [0; WARP] {
                    self.registers.remove(&key);
                }
            }
            return;
        };
        let found = self.registers.entry(key).or_insert_with(|| Undefined::NOTHING.into());
        each_lane(mask, |lane| {
            (found.bits[lane], found.origins[lane]) = (undefined.bits[lane], undefined.origins[lane]);
            found.treatments[lane] = undefined.treatments[lane];
        });
        if found.bits == [0; WARP] {
            self.registers.remove(&key);
        }
    }

    /// The results of the step are defined.
    pub(super) fn define_results(&mut self, moment: &Moment) {
        if self.is_empty() {
            return;
        }
        for (reg, class, role) in registers(moment) {
            if role == Role::Def {
                self.set(moment, class, reg, moment.lanes.mask, None);
            }
        }
    }

    /// The results of a step on registers: undefined where its sources make them so. `treatment` is
    /// what the instruction does with values.
    pub(super) fn compute(&mut self, moment: &Moment, treatment: Treatment) {
        if self.is_empty() {
            return;
        }
        let operands = registers(moment);
        let from: Vec<_> = operands
            .iter()
            .filter(|(.., role)| *role == Role::Use)
            .filter_map(|&(reg, class, _)| Some((reg, class, *self.undefined_part(moment, class, reg)?)))
            .collect();
        if from.iter().all(|(.., undefined)| undefined.lanes(moment.mask, u64::MAX) == 0) {
            return self.define_results(moment);
        }
        let exchanges = matches!(moment.step.op, Op::Warp { .. });
        let decided = from.iter().any(|(_, class, _)| *class == Class::Predicate);
        let treatment = if decided { Treatment::Computed } else { treatment };
        let mut trial = Trial::new(moment, &operands);
        let results = trial.differences(&from);
        for (reg, class, bits) in results {
            // What a lane keeps because the guard holds it back stays as it is.
            let kept = self.undefined_part(moment, class, reg).copied().unwrap_or(Undefined::NOTHING);
            let mut undefined = Undefined { bits, ..Undefined::NOTHING };
            each_lane(moment.mask, |lane| {
                if moment.lanes.mask >> lane & 1 == 0 {
                    undefined.bits[lane] |= kept.bits[lane];
                }
                undefined.origins[lane] = origin_of(&from, &kept, lane, exchanges);
                let before = from.iter().filter(|(.., source)| exchanges || source.bits[lane] != 0);
                let before = before.flat_map(|(.., source)| {
                    let lanes = if exchanges { 0..WARP } else { lane..lane + 1 };
                    lanes.filter(|&other| source.bits[other] != 0).map(|other| source.treatments[other])
                });
                undefined.treatments[lane] = before.chain([treatment]).max().unwrap_or(treatment);
            });
            self.set(moment, class, reg, moment.mask, Some(&undefined));
        }
    }
}

/// The origin that a result in `lane` gets: that of an undefined source.
fn origin_of(from: &[(Reg, Class, Undefined)], kept: &Undefined, lane: usize, exchanges: bool) -> u32 {
    let here =
        from.iter().find(|(.., source)| source.bits[lane] != 0).map(|(.., source)| source.origins[lane]);
    let elsewhere = || {
        let (.., source) = from.iter().find(|_| exchanges)?;
        (0..WARP).find(|&other| source.bits[other] != 0).map(|other| source.origins[other])
    };
    here.or_else(elsewhere).unwrap_or(kept.origins[lane])
}

fn place(moment: &Moment, class: Class, reg: Reg) -> RegisterKey {
    (moment.warp, class, *{ moment.registers }.count_mut(class) + reg.0)
}

/// The registers of the step, each with its class.
pub(super) fn registers(moment: &Moment) -> Vec<(Reg, Class, Role)> {
    let mut classes = moment.classes.iter();
    let mut found = Vec::new();
    moment.step.clone().registers(&mut |reg, role| {
        found.extend(classes.next().map(|class| (*reg, *class, role)));
    });
    found
}

/// A step on copies of its registers.
struct Trial<'m> {
    moment: &'m Moment<'m>,
    /// The step, with registers that are indices into the copies.
    step: Step,
    /// The registers that are copied, in the order of their copies in each class.
    copied: Vec<(Reg, Class)>,
    results: Vec<(Reg, Class)>,
    words: Vec<Word>,
    longs: Vec<Long>,
    predicates: Vec<u32>,
}

impl<'m> Trial<'m> {
    fn new(moment: &'m Moment<'m>, operands: &[(Reg, Class, Role)]) -> Self {
        let mut copied: Vec<(Reg, Class)> = Vec::new();
        let mut results = Vec::new();
        for &(reg, class, role) in operands {
            if !copied.contains(&(reg, class)) {
                copied.push((reg, class));
            }
            if role == Role::Def && !results.contains(&(reg, class)) {
                results.push((reg, class));
            }
        }
        let mut step = moment.step.clone();
        let mut order = operands.iter();
        step.registers(&mut |reg, _| {
            if let Some(&(original, class, _)) = order.next() {
                *reg = Reg(index(&copied, original, class) as u32);
            }
        });
        let (words, longs, predicates) = (Vec::new(), Vec::new(), Vec::new());
        Trial { moment, step, copied, results, words, longs, predicates }
    }

    /// The bits of each result in which trials differ.
    fn differences(&mut self, from: &[(Reg, Class, Undefined)]) -> Vec<(Reg, Class, [u64; WARP])> {
        let plain = self.outcome(|_, _, _, value| value);
        let mut differences: Vec<_> =
            self.results.iter().map(|&(reg, class)| (reg, class, [0u64; WARP])).collect();
        for pattern in self.patterns(from) {
            let tried = self.outcome(|reg, class, lane, value| {
                let source = from.iter().find(|(other, kind, _)| (*other, *kind) == (reg, class));
                let bits = source.map_or(0, |(.., undefined)| undefined.bits[lane]);
                value & !bits | pattern.value(reg, lane) & bits
            });
            for ((.., bits), (tried, plain)) in differences.iter_mut().zip(tried.iter().zip(&plain)) {
                (0..WARP).for_each(|lane| bits[lane] |= tried[lane] ^ plain[lane]);
            }
        }
        differences
    }

    /// Returns the values to try for undefined bits: the extremes, the values of other operands and
    /// of its neighbours, and random values.
    fn patterns(&self, from: &[(Reg, Class, Undefined)]) -> Vec<Pattern> {
        let all = |value: u64| Pattern::Lanes(Box::new([value; WARP]));
        let sign = |shift: u32| 1u64 << (shift - 1);
        let mut patterns =
            vec![all(0), all(u64::MAX), all(sign(32)), all(sign(64)), all(!sign(32)), all(!sign(64))];
        for &(reg, class) in &self.copied {
            if class != Class::Predicate && from.iter().any(|(_, kind, _)| *kind == class) {
                let held = self.held(reg, class);
                let near = |change: fn(u64) -> u64| Pattern::Lanes(Box::new(held.map(change)));
                patterns.extend([
                    near(|v| v),
                    near(|v| v.wrapping_add(1)),
                    near(|v| v.wrapping_sub(1)),
                    near(|v| !v),
                ]);
            }
        }
        patterns.extend((1..=RANDOM_TRIALS).map(Pattern::Random));
        patterns
    }

    /// The values of a register of the step as it is.
    fn held(&self, reg: Reg, class: Class) -> [u64; WARP] {
        let lanes = self.moment.lanes;
        // SAFETY: the frame has the registers of the step, in these classes.
        unsafe {
            match class {
                Class::Word => lanes.source::<u32>(reg).map(u64::from),
                Class::Long => *lanes.source::<u64>(reg),
                Class::Predicate => {
                    let bits = lanes.predicate(reg);
                    std::array::from_fn(|lane| (bits >> lane & 1).into())
                }
            }
        }
    }

    /// The results where registers hold what `change` makes of what they hold.
    fn outcome(&mut self, change: impl Fn(Reg, Class, usize, u64) -> u64) -> Vec<[u64; WARP]> {
        self.words.clear();
        self.longs.clear();
        self.predicates.clear();
        for &(reg, class) in &self.copied {
            let held = self.held(reg, class);
            let values: [u64; WARP] = std::array::from_fn(|lane| change(reg, class, lane, held[lane]));
            match class {
                Class::Word => self.words.push(Word(values.map(|value| value as u32))),
                Class::Long => self.longs.push(Long(values)),
                Class::Predicate => {
                    self.predicates
                        .push((0..WARP).fold(0, |bits, lane| bits | ((values[lane] & 1) as u32) << lane));
                }
            }
        }
        let mut lanes = Lanes {
            words: self.words.as_mut_ptr(),
            longs: self.longs.as_mut_ptr(),
            predicates: self.predicates.as_mut_ptr(),
            full: false,
            ..*self.moment.lanes
        };
        // SAFETY: the copies are the registers that the renamed step names, in the classes of the
        // originals, which are those that the handler takes.
        unsafe {
            lanes.mask = self.moment.mask & lanes.passing(self.step.guard);
            match &self.step.op {
                _ if lanes.mask == 0 => {}
                Op::Lanes { run, args, .. } => run(std::slice::from_ref(&lanes), args),
                Op::Warp { op, members, args } => exchange::run(&lanes, *op, *members, args),
                _ => {}
            }
        }
        self.results.iter().map(|&(reg, class)| self.result(index(&self.copied, reg, class), class)).collect()
    }

    fn result(&self, index: usize, class: Class) -> [u64; WARP] {
        match class {
            Class::Word => self.words[index].0.map(u64::from),
            Class::Long => self.longs[index].0,
            Class::Predicate => std::array::from_fn(|lane| (self.predicates[index] >> lane & 1).into()),
        }
    }
}

/// Returns the index of a register's copy among those of its class.
fn index(copied: &[(Reg, Class)], reg: Reg, class: Class) -> usize {
    let of_class = copied.iter().filter(|(_, kind)| *kind == class);
    of_class.take_while(|(other, _)| *other != reg).count()
}

/// A value that a trial puts into undefined bits.
enum Pattern {
    /// The same for every register.
    Lanes(Box<[u64; WARP]>),
    /// Numbers that differ between registers and lanes; by seed.
    Random(u64),
}

impl Pattern {
    fn value(&self, reg: Reg, lane: usize) -> u64 {
        match self {
            Pattern::Lanes(values) => values[lane],
            Pattern::Random(seed) => {
                // SplitMix64.
                let state =
                    (seed << 40 | u64::from(reg.0) << 8 | lane as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
                mixed ^ mixed >> 31
            }
        }
    }
}

/// The predicate of a guard.
pub(super) fn guard(step: &Step) -> Option<Reg> {
    match step.guard {
        Guard::Always => None,
        Guard::If(reg) | Guard::Unless(reg) => Some(reg),
    }
}
