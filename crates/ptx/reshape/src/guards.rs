//! Guards: what a thread has compared before it executes an instruction.
//!
//! An edge of control flow tells what its branch compared; what holds on the only edge into a block
//! holds in all blocks that it dominates. At a loop's head, what the last round compared holds for
//! the next one, if it was compared before the first round too.

use std::collections::{BTreeMap, HashMap};

use crate::code::Code;
use crate::known::{MOST_THREADS, Poly};
use crate::linear::{Bound, Facts, Linear, Need, coordinates, linear, numbers};
use ptx::ScalarType;
use ptx::analysis::{Definition, Origin};
use ptx::body::{InstructionId, Operand};
use ptx::flow::BlockId;
use ptx::instruction::{Comparison, Opcode};

/// Predicates in predicates that are looked through.
const DEPTH: u32 = 8;
/// Bounds of a block that are kept.
const MOST_BOUNDS: usize = 24;
/// Threads that a launch has more along an axis at most, when it is rounded up to whole blocks.
const SLACK: i128 = 1023;

/// A comparison that came out such that a number is below a limit, or at least the limit.
#[derive(Clone, Debug, PartialEq)]
struct Test {
    /// Modulo the width of the comparison.
    form: Linear,
    limit: Poly,
    is_floor: bool,
    bits: u32,
    signed: bool,
    needs: Vec<Need>,
}

/// The bounds that hold in each block.
pub(crate) struct Guards<'c, 'a, 'm> {
    code: &'c Code<'a, 'm>,
    /// Tests that each completed round of a loop has passed, by the loop.
    rounds: HashMap<u32, Vec<Test>>,
    blocks: HashMap<BlockId, Vec<Bound>>,
}

impl<'c, 'a, 'm> Guards<'c, 'a, 'm> {
    /// Finds the guards of a kernel.
    pub fn of(code: &'c Code<'a, 'm>) -> Self {
        let mut guards = Guards { code, rounds: HashMap::new(), blocks: HashMap::new() };
        for (round, found) in (0..).zip(code.values.loops()) {
            let of_latch = |latch: &BlockId| guards.tests_since(found.head, *latch);
            let mut latches = found.latches.iter().map(of_latch);
            let mut tests = latches.next().unwrap_or_default();
            latches.for_each(|other| tests.retain(|test| other.contains(test)));
            guards.rounds.insert(round, tests);
        }
        for &block in &code.reached {
            let mut bounds = guards.at_start(block);
            bounds.truncate(MOST_BOUNDS);
            guards.blocks.insert(block, bounds);
        }
        guards
    }

    /// The bounds that hold for a thread that executes an instruction.
    pub fn at(&self, at: InstructionId) -> Vec<Bound> {
        let mut bounds = self.in_block(self.code.flow.block_of(at)).to_vec();
        let line = &self.code.body.lines[at.index()];
        if let Some(guard) = line.guard
            && let Some(used) = guard.symbol.register().and_then(|register| self.code.used(at, register))
        {
            let mut tests = Vec::new();
            self.implied(used, !guard.negated, DEPTH, &mut tests);
            // They are the tightest: they come first.
            let own: Vec<Bound> = tests.iter().filter_map(|test| self.exact(test)).collect();
            bounds.splice(0..0, own);
        }
        bounds
    }

    /// The bounds that hold in a block.
    pub fn in_block(&self, block: BlockId) -> &[Bound] {
        self.blocks.get(&block).map_or(&[], Vec::as_slice)
    }

    fn at_start(&self, block: BlockId) -> Vec<Bound> {
        let above = self.code.definitions.dominators().parent(block);
        let mut bounds = match self.predecessors(block).as_slice() {
            [only] => self.tests_on(*only, block).iter().filter_map(|test| self.exact(test)).collect(),
            _ => self.at_head(block),
        };
        bounds.extend(above.into_iter().flat_map(|above| self.in_block(above)).cloned());
        bounds
    }

    fn predecessors(&self, block: BlockId) -> Vec<BlockId> {
        let tree = self.code.definitions.dominators();
        let all = &self.code.flow.block(block).predecessors;
        all.iter().copied().filter(|before| tree.contains(*before)).collect()
    }

    /// Bounds at the head of a loop that each way into it has checked.
    fn at_head(&self, head: BlockId) -> Vec<Bound> {
        let loops = self.code.values.loops();
        let Some(round) = loops.iter().position(|found| found.head == head) else { return Vec::new() };
        let latches = &loops[round].latches;
        let entries: Vec<Vec<Bound>> = self
            .predecessors(head)
            .into_iter()
            .filter(|before| !latches.contains(before))
            .map(|before| self.on_entry(before, head))
            .collect();
        let tests = self.rounds.get(&(round as u32)).into_iter().flatten().filter(|test| !test.is_floor);
        tests.filter_map(|test| self.carried(&self.exact(test)?, round as u32, &entries)).collect()
    }

    /// The bounds that hold before a loop is entered at its head.
    pub fn before(&self, head: BlockId) -> Vec<Bound> {
        let loops = self.code.values.loops();
        let found = loops.iter().find(|found| found.head == head);
        let entries: Vec<BlockId> = self.predecessors(head);
        let outside =
            entries.into_iter().filter(|block| found.is_some_and(|found| !found.latches.contains(block)));
        match outside.collect::<Vec<_>>().as_slice() {
            [only] => self.on_entry(*only, head),
            _ => {
                let above = self.code.definitions.dominators().parent(head);
                above.map_or(&[][..], |above| self.in_block(above)).to_vec()
            }
        }
    }

    fn on_entry(&self, before: BlockId, head: BlockId) -> Vec<Bound> {
        let own = self.tests_on(before, head);
        let own = own.iter().filter_map(|test| self.exact(test));
        own.chain(self.in_block(before).iter().cloned()).collect()
    }

    /// Returns what a bound of the last round says in the next one, whose number is one more.
    fn carried(&self, bound: &Bound, round: u32, entries: &[Vec<Bound>]) -> Option<Bound> {
        let step = bound.form.rounds.get(&round)?;
        let mut form = bound.form.clone();
        form.constant = form.constant.minus(step)?;
        let mut first = form.clone();
        first.rounds.remove(&round);
        let mut needs = bound.needs.clone();
        // A number that is the same for all threads needs no comparison before the first round.
        if first.is_known() {
            needs.extend(Need::at_most(&first.constant.plus_number(1)?, &bound.limit));
            return Some(Bound { form, needs, ..bound.clone() });
        }
        for entry in entries {
            let room = bound.limit.minus(&first.constant)?;
            let same = entry.iter().find(|one| {
                let other = one.limit.minus(&one.form.constant);
                !one.is_floor && one.form.is_parallel(&first) && other.as_ref() == Some(&room)
            });
            needs.extend(same?.needs.iter().cloned());
        }
        (!entries.is_empty()).then(|| Bound { form, needs, ..bound.clone() })
    }

    /// The tests on the way from a block to one that it dominates, and on along the edge back.
    fn tests_since(&self, head: BlockId, latch: BlockId) -> Vec<Test> {
        let mut tests = self.tests_on(latch, head);
        let mut block = latch;
        while block != head {
            if let [only] = self.predecessors(block).as_slice() {
                tests.extend(self.tests_on(*only, block));
            }
            match self.code.definitions.dominators().parent(block) {
                Some(above) => block = above,
                None => break,
            }
        }
        tests
    }

    /// The tests that the edge between two blocks tells.
    fn tests_on(&self, from: BlockId, to: BlockId) -> Vec<Test> {
        let block = self.code.flow.block(from);
        let mut tests = Vec::new();
        let Some(last) = block.end.0.checked_sub(1).filter(|last| *last >= block.first.0) else {
            return tests;
        };
        let last = InstructionId(last);
        let Some(guard) = self.code.body.lines[last.index()].guard else { return tests };
        let operation = self.code.operation(last);
        // The block that follows in the listing is the one that is fallen into.
        let falls = self.code.flow.block(to).first == block.end;
        let goes = block.successors.len() > 1 || block.leaves;
        if !operation.is(&[Opcode::Bra, Opcode::Ret, Opcode::Exit]) || !goes {
            return tests;
        }
        if let Some(used) = guard.symbol.register().and_then(|register| self.code.used(last, register)) {
            self.implied(used, guard.negated == falls, DEPTH, &mut tests);
        }
        tests
    }

    /// Returns the bounds that follow from the truth of a predicate.
    fn implied(&self, predicate: Definition, truth: bool, depth: u32, tests: &mut Vec<Test>) {
        let Origin::Instruction(at) = predicate.origin else { return };
        let (line, operation) = (&self.code.body.lines[at.index()], self.code.operation(at));
        if line.guard.is_some() || depth == 0 {
            return;
        }
        let (result, sources) = operation.split(&line.operands);
        let Some(Operand::Name(_)) = result else { return };
        let is_predicate = operation.types() == [ScalarType::Pred];
        match (operation.opcode, truth) {
            (Some(Opcode::And), true) | (Some(Opcode::Or), false) if is_predicate => {
                for source in sources {
                    self.implied_by(at, source, truth, depth, tests);
                }
            }
            (Some(Opcode::Not), _) if is_predicate => {
                sources.iter().for_each(|source| self.implied_by(at, source, !truth, depth, tests));
            }
            (Some(Opcode::Mov), _) if is_predicate => {
                sources.iter().for_each(|source| self.implied_by(at, source, truth, depth, tests));
            }
            (Some(Opcode::Setp), _) => tests.extend(self.compared(at, truth)),
            _ => {}
        }
    }

    fn implied_by(
        &self,
        at: InstructionId,
        source: &Operand<'m>,
        truth: bool,
        depth: u32,
        tests: &mut Vec<Test>,
    ) {
        let Operand::Name(symbol) = source else { return };
        if let Some(used) = symbol.register().and_then(|register| self.code.used(at, register)) {
            self.implied(used, truth, depth - 1, tests);
        }
    }

    /// The test that a comparison with this result is.
    fn compared(&self, at: InstructionId, truth: bool) -> Option<Test> {
        use Comparison::{Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual};
        let (line, operation) = (&self.code.body.lines[at.index()], self.code.operation(at));
        let [ty] = operation.types() else { return None };
        let (_, [a, b]) = operation.split(&line.operands) else { return None };
        let bits = match ty {
            ScalarType::U32 | ScalarType::S32 | ScalarType::B32 => 32,
            ScalarType::U64 | ScalarType::S64 | ScalarType::B64 => 64,
            _ => return None,
        };
        // (`lo` and its like are of unsigned numbers, whatever the type says.)
        let words = ["lo", "ls", "hi", "hs"];
        let signed =
            ty.is_signed() && !line.instruction.mnemonic.modifiers().any(|word| words.contains(&word));
        if operation.logic.is_some() {
            return None;
        }
        let (low, high, strict) = match (operation.comparison?, truth) {
            (Less, true) | (GreaterEqual, false) => (a, b, true),
            (LessEqual, true) | (Greater, false) => (a, b, false),
            (Greater, true) | (LessEqual, false) => (b, a, true),
            (GreaterEqual, true) | (Less, false) => (b, a, false),
            (Equal, true) | (NotEqual, false) => return self.equal(at, [a, b], bits),
            _ => return None,
        };
        self.test(at, [low, high], strict, bits, signed)
    }

    /// Equal numbers, of which one is known at the launch.
    fn equal(&self, at: InstructionId, [a, b]: [&Operand<'m>; 2], bits: u32) -> Option<Test> {
        let below = |pair| self.test(at, pair, false, bits, false).filter(|test| !test.is_floor);
        below([a, b]).or_else(|| below([b, a]))
    }

    fn test(
        &self,
        at: InstructionId,
        [low, high]: [&Operand<'m>; 2],
        strict: bool,
        bits: u32,
        signed: bool,
    ) -> Option<Test> {
        let mut needs = Vec::new();
        let low = linear(self.code, &self.code.operand(at, low, bits)?, signed, Facts::NONE, &mut needs)?;
        let high = linear(self.code, &self.code.operand(at, high, bits)?, signed, Facts::NONE, &mut needs)?;
        let (form, known, is_floor) = match (low.is_known(), high.is_known()) {
            (false, true) => (low, high.constant, false),
            (true, false) => (high, low.constant, true),
            _ => return None,
        };
        let (least, most) = numbers(bits, signed);
        needs.extend(Need::at_most(&Poly::number(least), &known));
        needs.extend(Need::at_most(&known, &Poly::number(most)));
        // The limit is the first number above, the floor the first one that is reached.
        let limit = if strict == is_floor { known.plus_number(1)? } else { known };
        Some(Test { form, limit, is_floor, bits, signed, needs })
    }

    /// The bound that a test is, if the number that it reads is never too large for the register: a
    /// number that wraps would pass. (A floor needs a number that is never too small.)
    fn exact(&self, test: &Test) -> Option<Bound> {
        let mut needs = test.needs.clone();
        if test.is_floor {
            let (least, _) = numbers(test.bits, test.signed);
            is_rising(&test.form).then_some(())?;
            needs.extend(Need::at_most(&Poly::number(least), &test.form.constant));
        } else if !never_wraps(test) {
            needs.extend(self.stays(&test.form, test.bits, test.signed)?);
        }
        Some(Bound { form: test.form.clone(), limit: test.limit.clone(), is_floor: test.is_floor, needs })
    }

    /// What keeps a number from growing above those that a register holds.
    fn stays(&self, number: &Linear, bits: u32, signed: bool) -> Option<Vec<Need>> {
        let (_, most) = numbers(bits, signed);
        let most = Poly::number(most);
        let mut needs = Vec::new();
        let mut greatest = self.greatest(number, &mut needs)?;
        if let Some((step, limit)) = self.step(number, bits, signed, &mut needs)? {
            needs.extend(Need::at_most(&Poly::default(), &step));
            needs.extend(Need::at_most(&limit.plus(&step)?.plus_number(-1)?, &most));
            greatest = greatest.plus(&step)?;
        }
        needs.extend(Need::at_most(&greatest, &most));
        Some(needs)
    }

    /// What keeps a number within those that a register holds.
    pub fn keep(&self, number: &Linear, bits: u32, signed: bool) -> Option<Vec<Need>> {
        let (least, _) = numbers(bits, signed);
        let mut needs = is_rising(number).then(|| self.stays(number, bits, signed))??;
        needs.extend(Need::at_most(&Poly::number(least), &number.constant));
        Some(needs)
    }

    /// What each round adds to a number, and the limit below which each completed round has found
    /// it; nothing in a number that only counted loops change.
    fn step(
        &self,
        number: &Linear,
        bits: u32,
        signed: bool,
        needs: &mut Vec<Need>,
    ) -> Option<Option<(Poly, Poly)>> {
        let mut rounds = number.rounds.iter().filter(|(round, _)| self.code.most_rounds(**round).is_none());
        let Some((round, step)) = rounds.next() else { return Some(None) };
        if rounds.next().is_some() {
            return None;
        }
        let keeps = |passed: &&Test| {
            (passed.bits, passed.signed) == (bits, signed) && keeps(&passed.form, number, step)
        };
        let passed = self.rounds.get(round)?.iter().filter(|test| !test.is_floor).find(keeps)?;
        needs.extend(passed.needs.iter().cloned());
        Some(Some((step.clone(), passed.limit.clone())))
    }

    /// The greatest value of a number before any round of a loop that is not counted, also in a
    /// launch with more threads.
    fn greatest(&self, number: &Linear, needs: &mut Vec<Need>) -> Option<Poly> {
        let first = Linear { rounds: BTreeMap::new(), ..number.clone() };
        let mut greatest = first.constant.clone();
        for coordinate in coordinates(&first, &[])? {
            if coordinate.stride.constant().is_some_and(|stride| stride < 0) {
                continue;
            }
            needs.extend(Need::at_most(&Poly::default(), &coordinate.stride));
            let last = coordinate.count?.plus_number(SLACK - 1)?;
            greatest = greatest.plus(&coordinate.stride.times(&last)?)?;
        }
        for (round, step) in &number.rounds {
            if let Some(most) = self.code.most_rounds(*round) {
                needs.extend(Need::at_most(&Poly::default(), step));
                greatest = greatest.plus(&step.times(&Poly::number(most))?)?;
            }
        }
        Some(greatest)
    }
}

/// Whether a number of constants and indices stays below the greatest that is read, because no
/// launch has more than 2^31 threads along an axis.
fn never_wraps(test: &Test) -> bool {
    let (_, most) = numbers(test.bits, test.signed);
    let reach = |stride: &Poly| stride.constant()?.max(0).checked_mul(MOST_THREADS - 1);
    let greatest = test
        .form
        .axes
        .iter()
        .try_fold(test.form.constant.constant(), |sum, stride| Some(sum?.checked_add(reach(stride)?)));
    test.form.rounds.is_empty() && greatest.flatten().is_some_and(|greatest| greatest <= most)
}

/// Whether a test that each round passes keeps a number from wrapping: it is about the same number,
/// in the same round or in the next one.
fn keeps(passed: &Linear, number: &Linear, step: &Poly) -> bool {
    let ahead = passed.constant.minus(&number.constant);
    passed.is_parallel(number) && ahead.is_some_and(|ahead| ahead.is_zero() || ahead == *step)
}

/// Whether a number grows with each index and round.
fn is_rising(number: &Linear) -> bool {
    let rises = |part: &Poly| part.range().is_some_and(|(least, _)| least >= 0);
    number.axes.iter().chain(number.rounds.values()).all(rises)
}
