//! Register allocation: liveness over blocks, then a linear scan over the steps in their final
//! order.
//!
//! The live range of a register is the interval from the first step to the last step at which it is
//! live. Registers with disjoint intervals may share a place. This is sound under divergence:
//! liveness is a property of one thread's path, each lane of a place belongs to one thread, and
//! steps write only their own lanes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::code::Step;
use crate::operands::{Class, Guard, Reg, Role};
use crate::registers::Extent;

/// Steps of a laid-out block, and the (laid-out) blocks that may follow.
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) successors: Vec<usize>,
}

/// The number of registers of each kind in a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) registers: Extent,
    /// Most 32-bit registers live at once.
    pub(super) pressure: u32,
}

/// A set of registers.
#[derive(Clone, PartialEq)]
pub(super) struct Set(Vec<u64>);

impl Set {
    pub(super) fn empty(registers: usize) -> Set {
        Set(vec![0; registers.div_ceil(64)])
    }

    pub(super) fn insert(&mut self, reg: usize) {
        self.0[reg / 64] |= 1 << (reg % 64);
    }

    pub(super) fn has(&self, reg: usize) -> bool {
        self.0[reg / 64] >> (reg % 64) & 1 != 0
    }

    pub(super) fn remove(&mut self, reg: usize) {
        self.0[reg / 64] &= !(1 << (reg % 64));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(word, &bits)| {
            let mut bits = bits;
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
                bits &= bits - 1;
                Some(word * 64 + bit)
            })
        })
    }
}

/// First and last moment at which a register is live. Step `i` reads at `2i` and writes at `2i +
/// 1`.
#[derive(Clone, Copy)]
struct Interval {
    first: usize,
    last: usize,
}

impl Interval {
    const EMPTY: Interval = Interval { first: usize::MAX, last: 0 };

    fn cover(&mut self, moment: usize) {
        self.first = self.first.min(moment);
        self.last = self.last.max(moment);
    }
}

/// Renames the registers of `steps` from virtual ones (indices into `classes`) to places in their
/// files. Those in `pinned` and in `kept` have a place of their own throughout; the latter count as
/// live only where they are. Returns where each register was put.
pub(super) fn allocate(
    steps: &mut [Step],
    spans: &[Span],
    classes: &[Class],
    pinned: &[Reg],
    kept: &[Reg],
) -> (Vec<Reg>, Sizes) {
    let intervals = intervals(steps, spans, classes.len());
    let mut pools = Pools::default();
    let mut places = vec![Reg::NONE; classes.len()];
    for reg in pinned {
        places[reg.0 as usize] = pools.take(classes[reg.0 as usize]);
    }
    let mut by_start: Vec<usize> = (0..classes.len())
        .filter(|&reg| places[reg] == Reg::NONE && intervals[reg].first != usize::MAX)
        .collect();
    by_start.sort_by_key(|&reg| intervals[reg].first);
    let mut ends: BinaryHeap<Reverse<(usize, usize)>> = BinaryHeap::new();
    let mut live = 0;
    for reg in by_start {
        while let Some(&Reverse((last, other))) = ends.peek() {
            if last >= intervals[reg].first {
                break;
            }
            ends.pop();
            if !kept.contains(&Reg(other as u32)) {
                pools.give(classes[other], places[other]);
            }
            live -= weight(classes[other]);
        }
        places[reg] = match kept.contains(&Reg(reg as u32)) {
            true => pools.take_new(classes[reg]),
            false => pools.take(classes[reg]),
        };
        ends.push(Reverse((intervals[reg].last, reg)));
        live += weight(classes[reg]);
        pools.sizes.pressure = pools.sizes.pressure.max(live);
    }
    for step in steps {
        step.registers(&mut |reg, _| *reg = places[reg.0 as usize]);
    }
    (places, pools.sizes)
}

fn weight(class: Class) -> u32 {
    match class {
        Class::Word => 1,
        Class::Long => 2,
        Class::Predicate => 0,
    }
}

/// Free places of each class.
#[derive(Default)]
struct Pools {
    words: Vec<Reg>,
    longs: Vec<Reg>,
    predicates: Vec<Reg>,
    sizes: Sizes,
}

impl Pools {
    fn pool(&mut self, class: Class) -> &mut Vec<Reg> {
        match class {
            Class::Word => &mut self.words,
            Class::Long => &mut self.longs,
            Class::Predicate => &mut self.predicates,
        }
    }

    fn give(&mut self, class: Class, place: Reg) {
        self.pool(class).push(place);
    }

    fn take(&mut self, class: Class) -> Reg {
        self.pool(class).pop().unwrap_or_else(|| self.take_new(class))
    }

    /// A place that nobody has had.
    fn take_new(&mut self, class: Class) -> Reg {
        let end = self.sizes.registers.count_mut(class);
        *end += 1;
        Reg(*end - 1)
    }
}

fn intervals(steps: &mut [Step], spans: &[Span], registers: usize) -> Vec<Interval> {
    let live_in = live_in(steps, spans, registers);
    let mut intervals = vec![Interval::EMPTY; registers];
    for (index, span) in spans.iter().enumerate() {
        for reg in live_in[index].iter() {
            intervals[reg].cover(2 * span.start);
        }
        for reg in span.successors.iter().flat_map(|&next| live_in[next].iter()) {
            intervals[reg].cover(2 * span.end - usize::from(span.end > span.start));
        }
        for (offset, step) in steps[span.start..span.end].iter_mut().enumerate() {
            let moment = 2 * (span.start + offset);
            step.registers(&mut |reg, role| {
                intervals[reg.0 as usize].cover(moment + usize::from(role == Role::Def));
            });
        }
    }
    intervals
}

/// Registers whose value at the start of each span may still be read.
pub(super) fn live_in(steps: &mut [Step], spans: &[Span], registers: usize) -> Vec<Set> {
    let empty = Set(vec![0; registers.div_ceil(64)]);
    // What a span reads before it writes it, and what it surely writes.
    let (mut reads, mut kills) = (vec![empty.clone(); spans.len()], vec![empty; spans.len()]);
    for (index, span) in spans.iter().enumerate() {
        for step in &mut steps[span.start..span.end] {
            let guarded = step.guard != Guard::Always;
            let (reads, kills) = (&mut reads[index], &mut kills[index]);
            step.registers(&mut |reg, role| {
                // A guarded write keeps the old value in some lanes, which is as good as reading
                // it.
                if (role == Role::Use || guarded) && !kills.has(reg.0 as usize) {
                    reads.insert(reg.0 as usize);
                }
            });
            step.registers(&mut |reg, role| {
                if role == Role::Def && !guarded {
                    kills.insert(reg.0 as usize);
                }
            });
        }
    }
    let mut predecessors = vec![Vec::new(); spans.len()];
    for (index, span) in spans.iter().enumerate() {
        span.successors.iter().for_each(|&next| predecessors[next].push(index));
    }
    let mut live = reads;
    let mut open: Vec<usize> = (0..spans.len()).collect();
    let mut queued = vec![true; spans.len()];
    while let Some(index) = open.pop() {
        queued[index] = false;
        let here = live[index].clone();
        for &before in &predecessors[index] {
            let mut grown = live[before].clone();
            for reg in here.iter().filter(|&reg| !kills[before].has(reg)) {
                grown.insert(reg);
            }
            if grown != live[before] {
                live[before] = grown;
                if !std::mem::replace(&mut queued[before], true) {
                    open.push(before);
                }
            }
        }
    }
    live
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Op;
    use crate::operands::Args;
    use crate::registers::shapes::binary;

    fn add(d: u32, a: u32, b: u32) -> Step {
        let args = Args { d: Reg(d), a: Reg(a), b: Reg(b), ..Args::EMPTY };
        let run = binary(|a: u32, b: u32| a.wrapping_add(b)).run;
        Step::new(Guard::Always, Op::Lanes { run, compares: None, args })
    }

    fn places(steps: &mut [Step]) -> Vec<(u32, Role)> {
        let mut found = Vec::new();
        steps.iter_mut().for_each(|step| step.registers(&mut |reg, role| found.push((reg.0, role))));
        found
    }

    #[test]
    fn registers_that_are_not_live_together_share_places() {
        let mut steps = [add(1, 0, 0), add(2, 1, 1), add(3, 2, 2), add(4, 3, 3)];
        let spans = [Span { start: 0, end: 4, successors: vec![] }];
        let (_, sizes) = allocate(&mut steps, &spans, &[Class::Word; 5], &[Reg(0)], &[]);
        assert_eq!(sizes.registers.words, 2);
        assert_eq!(sizes.pressure, 1);
    }

    #[test]
    fn what_a_loop_carries_keeps_its_place_through_the_loop() {
        // 1 is set before the loop and read in it; 2 and 3 come and go.
        let mut steps = [add(1, 0, 0), add(2, 0, 0), add(3, 2, 1), add(4, 3, 3)];
        let spans = [
            Span { start: 0, end: 1, successors: vec![1] },
            Span { start: 1, end: 4, successors: vec![1, 2] },
            Span { start: 4, end: 4, successors: vec![] },
        ];
        let (_, sizes) = allocate(&mut steps, &spans, &[Class::Word; 5], &[Reg(0)], &[]);
        let loop_carried = places(&mut steps[..1])[2].0;
        let others = places(&mut steps[1..]);
        assert!(others.iter().all(|&(place, role)| role == Role::Use || place != loop_carried));
        assert_eq!(sizes.registers.words, 3);
    }

    #[test]
    fn a_guarded_write_does_not_end_the_old_value() {
        let mut steps = [add(1, 0, 0), add(2, 0, 0), add(1, 2, 2), add(3, 1, 1)];
        steps[2].guard = Guard::If(Reg(4));
        let spans = [Span { start: 0, end: 4, successors: vec![] }];
        let classes = [Class::Word, Class::Word, Class::Word, Class::Word, Class::Predicate];
        let (_, sizes) = allocate(&mut steps, &spans, &classes, &[Reg(0), Reg(4)], &[]);
        assert_eq!((sizes.registers.words, sizes.registers.predicates), (3, 1));
    }

    #[test]
    fn classes_have_files_of_their_own() {
        let mut steps = [add(1, 0, 0), add(2, 1, 1)];
        let spans = [Span { start: 0, end: 2, successors: vec![] }];
        let (_, sizes) =
            allocate(&mut steps, &spans, &[Class::Long, Class::Long, Class::Word], &[Reg(0)], &[]);
        assert_eq!(sizes.registers, Extent { words: 1, longs: 2, predicates: 0 });
        assert_eq!(sizes.pressure, 2);
    }
}
