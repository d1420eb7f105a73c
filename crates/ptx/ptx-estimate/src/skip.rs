//! Rounds of a loop that are not executed, because it is known what they would do.
//!
//! Three arrivals at the end of a loop's round show two whole rounds. Where registers changed by
//! the same amount in both, and comparisons were made of numbers that changed by the same amount,
//! it can be computed in which round a comparison will come out otherwise for the first time. All
//! rounds before that one count as the last round did, and registers go on by as much.
//!
//! In loops that are not as regular as that but whose bounds are, each round that is left counts as
//! the mean of those that were seen; that is an extrapolation, and is made only after many rounds,
//! or when the budget runs out. A loop that depends on guessed numbers and would run very long, or
//! for ever, is left after a few rounds: the guess says nothing.

use super::code::{Access, Action, Kind};
use super::loops::Change;
use super::value::{LANES, Value, integer, ones};
use super::warp::{Counters, FIGURES, Warp};
use ptx::instruction::Comparison;

/// Rounds that must have been seen before others are taken for their mean, if there is time to see
/// them.
const SAMPLE_ROUNDS: u64 = 48;
/// The factor by which the wait for the next attempt to skip shrinks once half of the share is
/// used.
const HASTE: u64 = 8;
/// Rounds after which lanes that have not left a loop are expected to stay.
const STEADY_ROUNDS: u64 = 64;
/// Rounds that a loop may have on the word of a guess.
const MOST_GUESSED_ROUNDS: u64 = 1 << 16;
/// Rounds that such a loop may be executed for.
const MOST_WALKED_GUESSES: u64 = 1024;
/// Rounds that a loop is taken to have if nothing is known.
const UNKNOWN_ROUNDS: f64 = 8.0;
/// Rounds of a loop that is judged for the first time.
const ROUNDS_TO_JUDGE: u64 = 3;
/// Comparisons that are remembered at most.
const MOST_EVENTS: usize = 1024;

/// A comparison that was made, or rounds of an inner loop that were skipped.
#[derive(Clone, Debug)]
struct Event {
    step: usize,
    mask: u32,
    outcome: u32,
    a: Value,
    b: Value,
}

/// The observations of each loop's rounds.
#[derive(Clone, Debug)]
pub(super) struct Skips {
    states: Vec<State>,
    events: Vec<Event>,
    /// Loops that are being watched.
    watching: usize,
}

#[derive(Clone, Debug, Default)]
struct State {
    /// Rounds so far, with these lanes.
    rounds: u64,
    mask: u32,
    /// Arrivals that were recorded: none, one, or two.
    seen: Vec<Arrival>,
    /// Rounds to let pass before the next attempt, and how many it was the last time.
    wait: u64,
    patience: u64,
    /// Rounds, counters and steps taken at the first arrival.
    first: Option<(u64, Partial, u64)>,
    /// Whether a guess decides how long it runs.
    guessed: bool,
    leaves: bool,
}

impl State {
    /// Rounds to let pass after an attempt that came to nothing.
    fn patience_after(&self) -> u64 {
        (2 * self.patience).clamp(2, 64)
    }
}

/// The state at the end of a round.
#[derive(Clone, Debug)]
struct Arrival {
    /// Events before it.
    events: usize,
    /// The registers that the loop writes.
    registers: Vec<Value>,
    counters: Partial,
}

/// The counts within the steps of a loop.
#[derive(Clone, Debug)]
struct Partial {
    visits: Vec<f64>,
    lanes: Vec<f64>,
    figures: [f64; FIGURES],
}

impl Partial {
    fn of(counters: &Counters, first: usize, last: usize) -> Partial {
        Partial {
            visits: counters.visits[first..=last].to_vec(),
            lanes: counters.lanes[first..=last].to_vec(),
            figures: counters.figures,
        }
    }

    /// Adds `times` times what was counted since.
    fn repeat(&self, counters: &mut Counters, first: usize, times: f64) {
        let again = |now: &mut f64, before: &f64| *now += (*now - before) * times;
        let grow = |now: &mut [f64], before: &[f64]| {
            now.iter_mut().zip(before).for_each(|(now, before)| again(now, before));
        };
        grow(&mut counters.visits[first..], &self.visits);
        grow(&mut counters.lanes[first..], &self.lanes);
        grow(&mut counters.figures, &self.figures);
    }
}

impl Skips {
    pub(super) fn new(loops: usize) -> Skips {
        Skips { states: vec![State::default(); loops], events: Vec::new(), watching: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.states.iter_mut().for_each(|state| *state = State::default());
        self.events.clear();
        self.watching = 0;
    }

    /// Whether comparisons are to be reported.
    pub(super) fn observing(&self) -> bool {
        self.watching > 0
    }

    pub(super) fn observe(&mut self, step: usize, mask: u32, outcome: u32, a: &Value, b: &Value) {
        if self.events.len() >= MOST_EVENTS {
            for index in 0..self.states.len() {
                self.forget(index);
            }
            return;
        }
        self.events.push(Event { step, mask, outcome, a: a.clone(), b: b.clone() });
    }

    /// A guess has decided whether a loop goes on.
    pub(super) fn guesses(&mut self, index: usize) {
        self.states[index].guessed = true;
    }

    /// Whether a loop is to be left.
    pub(super) fn leaves(&self, index: usize) -> bool {
        self.states[index].leaves
    }

    /// Begins to watch a loop anew, after a while.
    fn forget(&mut self, index: usize) {
        let state = &mut self.states[index];
        if !state.seen.is_empty() {
            state.seen.clear();
            state.patience = state.patience_after();
            state.wait = state.patience;
            self.watching -= 1;
        }
        if self.watching == 0 {
            self.events.clear();
        }
    }

    /// A loop is about to be entered, for all that is known.
    fn reset(&mut self, index: usize) {
        self.forget(index);
        self.states[index] = State::default();
    }
}

/// The prediction for a loop's further rounds, from two rounds.
enum Outlook {
    /// This number of rounds is like the last; the next is not.
    Same(u64),
    /// They never end.
    Endless,
    Unknown,
}

impl Warp<'_> {
    /// The lanes of `mask` go from the step `at` back to `first`.
    pub(super) fn arrive(&mut self, at: usize, first: usize, mask: u32) {
        let loops = self.loops;
        let Some(index) = loops.around(at).find(|&index| loops.loops[index].first == first) else { return };
        let watched = &loops.loops[index];
        for inner in (0..index).filter(|&inner| watched.contains(loops.loops[inner].first)) {
            self.skips.reset(inner);
        }
        let state = &mut self.skips.states[index];
        if state.mask != mask {
            self.skips.reset(index);
            self.skips.states[index].mask = mask;
        }
        let state = &mut self.skips.states[index];
        state.rounds += 1;
        if state.first.is_none() {
            let counters = Partial::of(&self.counters, watched.first, watched.last);
            state.first = Some((state.rounds, counters, self.taken));
        }
        if state.guessed && state.rounds > MOST_WALKED_GUESSES {
            state.leaves = true;
        }
        if state.leaves {
            return;
        }
        if state.wait > 0 {
            state.wait = state.wait.saturating_sub(if 2 * self.taken < self.share { 1 } else { HASTE });
            return;
        }
        if state.seen.len() < 2 {
            return self.record(index);
        }
        self.judge(index);
    }

    fn record(&mut self, index: usize) {
        let watched = &self.loops.loops[index];
        let registers = watched.written.iter().map(|&register| self.registers[register as usize].clone());
        let arrival = Arrival {
            events: self.skips.events.len(),
            registers: registers.collect(),
            counters: Partial::of(&self.counters, watched.first, watched.last),
        };
        let state = &mut self.skips.states[index];
        self.skips.watching += usize::from(state.seen.is_empty());
        state.seen.push(arrival);
    }

    /// After two recorded rounds: skips what can be.
    fn judge(&mut self, index: usize) {
        let outlook = self.outlook(index);
        let state = &self.skips.states[index];
        let guessed = state.guessed;
        match outlook {
            Outlook::Same(rounds) if guessed && rounds > MOST_GUESSED_ROUNDS => match self.room(index) {
                Some(room) => self.skip_to_end(index, room, false),
                None => self.give_up(index, UNKNOWN_ROUNDS),
            },
            Outlook::Same(rounds) => self.skip(index, rounds, false),
            // Only another thread can end it: it waits for one.
            Outlook::Endless if self.arrays.are_known() => self.give_up(index, 1.0),
            Outlook::Endless => self.give_up(index, UNKNOWN_ROUNDS),
            Outlook::Unknown => self.extrapolate(index),
        }
    }

    /// Leaves a loop of which nothing is known, as if it had had `rounds` rounds.
    fn give_up(&mut self, index: usize, rounds: f64) {
        self.assumed = true;
        let first = self.loops.loops[index].first;
        let state = &mut self.skips.states[index];
        state.leaves = true;
        if let Some(last) = state.seen.last() {
            // Less the round that leaves. Rounds that were walked count, but for those of a loop
            // that has done nothing else than wait.
            let missing = rounds - 1.0 - state.rounds as f64;
            let waits = rounds == 1.0 && state.rounds <= ROUNDS_TO_JUDGE;
            last.counters.repeat(&mut self.counters, first, if waits { missing } else { missing.max(0.0) });
        }
        self.skips.forget(index);
    }

    /// Takes the next rounds as done, but for the last, which leaves the loop.
    fn skip_to_end(&mut self, index: usize, rounds: u64, mean: bool) {
        self.assumed = true;
        self.skips.states[index].leaves = true;
        self.skip(index, rounds.saturating_sub(1), mean);
    }

    /// Returns the number of rounds that are left until an access of a loop that a guess bounds
    /// would leave its allocation.
    fn room(&self, index: usize) -> Option<u64> {
        let watched = &self.loops.loops[index];
        let state = &self.skips.states[index];
        let [.., later] = state.seen.as_slice() else { return None };
        let lanes = (0..LANES).filter(|lane| state.mask >> lane & 1 == 1);
        let room = |access: &Access, lane: usize| {
            let place = watched.written.iter().position(|&register| register == access.address)?;
            let (before, now) = (&later.registers[place], &self.registers[access.address as usize]);
            let step = now.lane(lane).wrapping_sub(before.lane(lane)) as i64;
            let address = now.lane(lane).wrapping_add_signed(access.offset);
            self.arrays.room(address, step, access.bytes.into())
        };
        let accesses =
            self.code.steps[watched.first..=watched.last].iter().filter_map(|step| match &step.action {
                Action::Access(access) if !self.registers[access.address as usize].guessed => Some(access),
                _ => None,
            });
        accesses.flat_map(|access| lanes.clone().filter_map(move |lane| room(access, lane))).min()
    }

    /// Takes what is left of a loop for the mean of what was seen, if the rest is too much to be
    /// executed and what was seen is enough, or all that there is time for.
    fn extrapolate(&mut self, index: usize) {
        let state = &self.skips.states[index];
        let Some((round, _, taken)) = &state.first else { return };
        let seen = state.rounds - round;
        let cost = |rounds: u64| (self.taken - taken) as f64 / seen.max(1) as f64 * rounds as f64;
        let left = |share: f64| share - self.taken as f64;
        let share = self.share as f64;
        let last_chance = cost(state.patience_after() + 3) > left(share);
        if (seen >= SAMPLE_ROUNDS || last_chance)
            && let Outlook::Same(bound) = self.bound(index)
        {
            if state.guessed && bound > MOST_GUESSED_ROUNDS {
                return match self.room(index) {
                    Some(room) => self.skip_to_end(index, room, true),
                    None => self.skips.forget(index),
                };
            }
            // Where data may end the loop before its bound does, it goes on for as long as it has.
            let loose = !self.loops.loops[index].bounded && seen < STEADY_ROUNDS;
            let rounds = if loose { bound.min(seen) } else { bound };
            let enough = if loose { left(share) <= 0.0 } else { cost(rounds) > left(share / 2.0) };
            if enough {
                self.skips.states[index].leaves = loose;
                return self.skip(index, rounds, true);
            }
        }
        self.skips.forget(index);
    }

    /// Takes the next rounds as done.
    fn skip(&mut self, index: usize, rounds: u64, mean: bool) {
        let watched = &self.loops.loops[index];
        if rounds == 0 {
            return self.skips.forget(index);
        }
        let state = &self.skips.states[index];
        let times = rounds as f64;
        match (&state.first, state.seen.last()) {
            (Some((round, first, _)), _) if mean => {
                let seen = (state.rounds - round).max(1) as f64;
                first.repeat(&mut self.counters, watched.first, times / seen);
                self.extrapolated = true;
            }
            (_, Some(last)) => last.counters.repeat(&mut self.counters, watched.first, times),
            _ => return,
        }
        let [earlier, later] = state.seen.as_slice() else { return };
        for (place, &register) in watched.written.iter().enumerate() {
            let bits = self.loops.widths[register as usize];
            let now = &mut self.registers[register as usize];
            let (before, between) = (&earlier.registers[place], &later.registers[place]);
            let steady = watched.changes[register as usize] < Change::Other
                && steady(before, between, now, state.mask, bits);
            if !steady {
                now.guessed = true;
            } else if !(now.uniform && between.uniform && now.lanes[0] == between.lanes[0]) {
                advance(now, between, rounds, bits);
            }
        }
        let state = &mut self.skips.states[index];
        state.rounds += rounds;
        let marker = Value::uniform(rounds);
        let at = watched.last;
        self.skips.forget(index);
        let state = &mut self.skips.states[index];
        (state.wait, state.patience, state.first) = (0, 0, None);
        if self.skips.observing() {
            self.skips.observe(at, 0, 0, &marker, &marker);
        }
    }

    /// Combines all comparisons into an outlook.
    fn outlook(&self, index: usize) -> Outlook {
        let watched = &self.loops.loops[index];
        let state = &self.skips.states[index];
        let [earlier, later] = state.seen.as_slice() else { return Outlook::Unknown };
        if !watched.regular {
            return Outlook::Unknown;
        }
        for (place, &register) in watched.written.iter().enumerate() {
            let now = &self.registers[register as usize];
            let bits = self.loops.widths[register as usize];
            let linear = watched.changes[register as usize] < Change::Other;
            if linear && !steady(&earlier.registers[place], &later.registers[place], now, state.mask, bits) {
                return Outlook::Unknown;
            }
        }
        let events = &self.skips.events;
        let (one, two) = (&events[earlier.events..later.events], &events[later.events..]);
        let alike = |(a, b): (&Event, &Event)| a.step == b.step && a.mask == b.mask && a.outcome == b.outcome;
        if one.len() != two.len() || !one.iter().zip(two).all(alike) {
            return Outlook::Unknown;
        }
        self.soonest(index, one.iter().zip(two))
    }

    /// Returns the outlook of the comparisons that end the loop.
    fn bound(&self, index: usize) -> Outlook {
        let watched = &self.loops.loops[index];
        let state = &self.skips.states[index];
        let [earlier, later] = state.seen.as_slice() else { return Outlook::Unknown };
        let events = &self.skips.events;
        let (one, two) = (&events[earlier.events..later.events], &events[later.events..]);
        let last = |events: &[Event], step: usize| {
            events.iter().rposition(|event| event.step == step && event.mask & state.mask == state.mask)
        };
        let pairs =
            watched.bounds.iter().filter_map(|&step| Some((&one[last(one, step)?], &two[last(two, step)?])));
        let pairs: Vec<_> = pairs.collect();
        if pairs.iter().any(|(a, b)| a.outcome != b.outcome) {
            return Outlook::Unknown;
        }
        match self.soonest(index, pairs.into_iter()) {
            Outlook::Endless => Outlook::Unknown,
            outlook => outlook,
        }
    }

    /// Returns the number of rounds until one of these comparisons changes.
    fn soonest<'e>(&self, index: usize, pairs: impl Iterator<Item = (&'e Event, &'e Event)>) -> Outlook {
        let changes = &self.loops.loops[index].changes;
        let mut soonest = None;
        for (before, now) in pairs {
            let (kind, relation, registers) = match &self.code.steps[now.step].action {
                Action::Compare(comparison) => {
                    (comparison.kind, comparison.relation, [comparison.a, comparison.b])
                }
                Action::Compute { form, from, .. } => (form.from, Comparison::Less, [from[0], from[1]]),
                // Rounds of an inner loop that were skipped.
                _ if before.a.lanes[0] == now.a.lanes[0] => continue,
                _ => return Outlook::Unknown,
            };
            // Nothing that is decided in the loop depends on it.
            if registers.iter().any(|&register| changes[register as usize] == Change::Other) {
                continue;
            }
            let Some(change) = turn(before, now, kind, relation) else { continue };
            soonest = Some(soonest.map_or(change, |soonest: u64| soonest.min(change)));
        }
        soonest.map_or(Outlook::Endless, |soonest| Outlook::Same(soonest.saturating_sub(1)))
    }
}

/// Whether a register changed by the same amount twice, in the lanes of `mask`.
fn steady(before: &Value, between: &Value, now: &Value, mask: u32, bits: u32) -> bool {
    let same = |lane: usize| {
        let (a, b, c) = (before.lane(lane), between.lane(lane), now.lane(lane));
        (c.wrapping_sub(b) ^ b.wrapping_sub(a)) & ones(bits) == 0
    };
    if before.uniform && between.uniform && now.uniform {
        return same(0);
    }
    (0..LANES).filter(|lane| mask >> lane & 1 == 1).all(same)
}

/// Changes a register by as much as in the last round, `rounds` times.
fn advance(now: &mut Value, between: &Value, rounds: u64, bits: u32) {
    now.uniform &= between.uniform;
    for lane in 0..LANES {
        let change = now.lanes[lane].wrapping_sub(between.lane(lane));
        now.lanes[lane] = now.lanes[lane].wrapping_add(change.wrapping_mul(rounds)) & ones(bits);
    }
}

/// Returns the number of rounds until a comparison has another result in some lane, if numbers go
/// on changing as they did; `None` if it never has.
fn turn(before: &Event, now: &Event, kind: Kind, relation: Comparison) -> Option<u64> {
    let uniform = [before, now].iter().all(|event| event.a.uniform && event.b.uniform);
    let lanes = (0..LANES).filter(|lane| now.mask >> lane & 1 == 1).take(if uniform { 1 } else { LANES });
    lanes
        .filter_map(|lane| {
            let outcome = now.outcome >> lane & 1 == 1;
            let [a, b] =
                [(&before.a, &now.a), (&before.b, &now.b)].map(|(x, y)| (x.lane(lane), y.lane(lane)));
            turn_of_lane(a, b, kind, relation, outcome)
        })
        .min()
}

/// The same in one lane: `a` and `b` before and now.
fn turn_of_lane(
    a: (u64, u64),
    b: (u64, u64),
    kind: Kind,
    relation: Comparison,
    outcome: bool,
) -> Option<u64> {
    let Kind::Integer { bits, signed } = kind else {
        return (a.0 != a.1 || b.0 != b.1).then_some(1);
    };
    let change = |(before, now): (u64, u64)| integer(now.wrapping_sub(before) & ones(bits), bits, true);
    let (slope_a, slope_b) = (change(a), change(b));
    let (a, b) = (integer(a.1, bits, signed), integer(b.1, bits, signed));
    let (gap, slope) = (b - a, slope_b - slope_a);
    // The first time at which the gap, going on by `slope`, is at least (or at most, if it shrinks)
    // `goal`.
    let reach = |goal: i128| {
        let (far, step) = if slope > 0 { (goal - gap, slope) } else { (gap - goal, -slope) };
        (step != 0).then(|| ((far + step - 1) / step).max(1))
    };
    let turn = match (relation, outcome) {
        (Comparison::Equal, true) | (Comparison::NotEqual, false) => (slope != 0).then_some(1),
        (Comparison::Equal, false) | (Comparison::NotEqual, true) => {
            (slope != 0 && gap % slope == 0 && gap / slope < 0).then(|| -(gap / slope))
        }
        // a < b while the gap is positive, a <= b while it is not negative.
        (Comparison::Less, true) | (Comparison::GreaterEqual, false) => reach(0).filter(|_| slope < 0),
        (Comparison::Less, false) | (Comparison::GreaterEqual, true) => reach(1).filter(|_| slope > 0),
        (Comparison::LessEqual, true) | (Comparison::Greater, false) => reach(-1).filter(|_| slope < 0),
        (Comparison::LessEqual, false) | (Comparison::Greater, true) => reach(0).filter(|_| slope > 0),
        _ => Some(1),
    };
    // Numbers that leave the range of their type come back at its other end.
    let (least, most) =
        if signed { (-1i128 << (bits - 1), (1i128 << (bits - 1)) - 1) } else { (0, (1i128 << bits) - 1) };
    let wrap = |value: i128, slope: i128| match slope {
        0 => None,
        slope if slope > 0 => Some((most - value) / slope + 1),
        slope => Some((value - least) / -slope + 1),
    };
    let soonest = [turn, wrap(a, slope_a), wrap(b, slope_b)].into_iter().flatten().min()?;
    u64::try_from(soonest).ok()
}
