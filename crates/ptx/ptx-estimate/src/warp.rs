//! Executes one warp without memory.
//!
//! Diverged lanes form groups. The group with the lowest step executes first, and groups that reach
//! the same step merge. In compiled code this is where lanes reconverge.

use super::Work;
use super::arrays::Arrays;
use super::code::{Access, Action, Code, Compare, Guard, Kind, NONE, Register, Update};
use super::compile::LOCAL_BASE;
use super::contention::Contention;
use super::loops::Loops;
use super::reuse::Reuse;
use super::skip::Skips;

use super::value::{LANES, Value, compare, compute, guess, ones};
use ptx::analysis::{MOST_TOUCHED, Request};
use ptx::instruction::{Comparison, Direction, Logic, Shuffle, Vote};
use ptx::syntax::StateSpace;
use ptx_lower::Op;
use ptx_lower::scalar::shuffled;

/// The numbers among which one that is loaded is guessed: those of some bits (counts and places are
/// not negative), and perhaps only those below a bound.
struct Most {
    mask: u64,
    below: Option<u64>,
}

/// The end of local memory.
const LOCAL_END: u64 = 1 << 32;

macro_rules! figures {
    ($($(#[$doc:meta])* $figure:ident => $place:ident,)*) => {
        /// Counters besides visits of steps.
        #[derive(Clone, Copy, Debug)]
        pub(super) enum Figure { $($(#[$doc])* $figure),* }

        /// The number of [`Figure`]s.
        pub(super) const FIGURES: usize = [$(Figure::$figure),*].len();

        impl Work {
            /// Takes over what was counted.
            pub(super) fn count_figures(&mut self, figures: &[f64; FIGURES]) {
                $(self.$place = figures[Figure::$figure as usize];)*
            }
        }
    };
}

figures! {
    LoadRequests => global_load_requests,
    LoadSectors => global_load_sectors,
    LoadBytes => global_load_bytes,
    Lines => global_lines,
    WarpSectors => warp_sectors,
    BlockSectors => block_sectors,
    LaunchSectors => launch_sectors,
    StoreRequests => global_store_requests,
    StoreSectors => global_store_sectors,
    StoreBytes => global_store_bytes,
    WrittenSectors => written_sectors,
    SharedRequests => shared_requests,
    SharedWavefronts => shared_wavefronts,
    LocalRequests => local_requests,
    LocalSectors => local_sectors,
    ConstantWavefronts => constant_wavefronts,
    AtomicRequests => atomic_requests,
    AtomicLanes => atomic_lanes,
    AtomicWavefronts => atomic_wavefronts,
    /// Sectors of global memory that these touch, counted for each request on its own.
    AtomicSectors => atomic_sectors,
    AtomicTurns => atomic_turns,
    SharedAtomicTurns => shared_atomic_turns,
    Barriers => barriers_per_warp,
    UnknownBranches => unknown_branches,
    UnknownCalls => unknown_calls,
}

/// The work that a warp has done.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    /// The number of executions of each step.
    pub(super) visits: Vec<f64>,
    /// The number of lanes that executed each step, in all executions together.
    pub(super) lanes: Vec<f64>,
    pub(super) figures: [f64; FIGURES],
}

impl Counters {
    pub(super) fn new(steps: usize) -> Counters {
        Counters { visits: vec![0.0; steps], lanes: vec![0.0; steps], figures: [0.0; FIGURES] }
    }

    /// Adds the work of another, `times` times.
    pub(super) fn add(&mut self, other: &Counters, times: f64) {
        let add = |sum: &mut [f64], more: &[f64]| {
            sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += times * more);
        };
        add(&mut self.visits, &other.visits);
        add(&mut self.lanes, &other.lanes);
        add(&mut self.figures, &other.figures);
    }

    pub(super) fn clear(&mut self) {
        self.visits.fill(0.0);
        self.lanes.fill(0.0);
        self.figures = [0.0; FIGURES];
    }
}

/// A warp on its way.
pub(super) struct Warp<'c> {
    pub(super) code: &'c Code,
    pub(super) loops: &'c Loops,
    pub(super) arrays: Arrays<'c>,
    pub(super) registers: Vec<Value>,
    pub(super) counters: Counters,
    pub(super) skips: Skips,
    /// The sectors of atomic operations of all warps so far.
    pub(super) contention: Contention,
    /// The sectors that all warps so far have loaded and stored.
    pub(super) reuse: Reuse,
    pub(super) stored: Reuse,
    /// Steps that it may take, and has taken.
    pub(super) share: u64,
    pub(super) taken: u64,
    /// Whether something was assumed or extrapolated.
    pub(super) assumed: bool,
    pub(super) extrapolated: bool,
    /// Lanes that have not ended.
    alive: u32,
    /// Buffers for results.
    scratch: Vec<Value>,
}

/// Groups that wait: where, and which lanes.
#[derive(Default)]
struct Waiting {
    groups: Vec<(usize, u32)>,
    /// The lowest step that one waits at.
    next: usize,
}

impl Waiting {
    fn new() -> Waiting {
        Waiting { groups: Vec::new(), next: usize::MAX }
    }

    fn push(&mut self, step: usize, mask: u32) {
        self.groups.push((step, mask));
        self.next = self.next.min(step);
    }

    /// All that wait at the lowest step.
    fn take(&mut self) -> Option<(usize, u32)> {
        let step = self.next;
        let mut mask = 0;
        self.groups.retain(|(other, lanes)| {
            if *other == step {
                mask |= lanes;
            }
            *other != step
        });
        self.next = self.groups.iter().map(|(step, _)| *step).min().unwrap_or(usize::MAX);
        (mask != 0).then_some((step, mask))
    }
}

impl<'c> Warp<'c> {
    pub(super) fn new(code: &'c Code, loops: &'c Loops, allocations: &'c [u64]) -> Warp<'c> {
        Warp {
            code,
            loops,
            arrays: Arrays::new(allocations),
            registers: vec![Value::uniform(0); code.registers],
            counters: Counters::new(code.steps.len()),
            skips: Skips::new(loops.loops.len()),
            contention: Contention::default(),
            reuse: Reuse::new(code.steps.len()),
            stored: Reuse::new(code.steps.len()),
            share: 0,
            taken: 0,
            assumed: false,
            extrapolated: false,
            alive: 0,
            scratch: vec![Value::uniform(0); 2],
        }
    }

    /// The warps to come are of another block.
    pub(super) fn begin_block(&mut self) {
        self.reuse.begin_block();
        self.stored.begin_block();
    }

    /// Forgets what the warp before did, except what it assumed and where its atomic operations
    /// went.
    pub(super) fn begin(&mut self, share: u64) {
        self.counters.clear();
        self.skips.clear();
        self.contention.begin();
        self.reuse.begin_warp();
        self.stored.begin_warp();
        (self.share, self.taken) = (share, 0);
    }

    /// Walks until all lanes of `mask` have ended, or twice its share of steps is used up.
    pub(super) fn run(&mut self, mask: u32) {
        self.alive = mask;
        let mut waiting = Waiting::new();
        let mut at = 0;
        let mut mask = mask;
        let code = self.code;
        loop {
            if at >= waiting.next {
                waiting.push(at, mask);
                if let Some(group) = waiting.take() {
                    (at, mask) = group;
                }
            }
            let step = code.steps.get(at).filter(|_| mask != 0);
            let Some(step) = step else {
                self.alive &= !mask;
                match waiting.take() {
                    Some(group) => (at, mask) = group,
                    None => return,
                }
                continue;
            };
            self.taken += 1;
            if self.taken > 2 * self.share {
                self.extrapolated = true;
                return;
            }
            self.counters.visits[at] += 1.0;
            self.counters.lanes[at] += f64::from(mask.count_ones());
            let guarded = match step.guard {
                None => mask,
                Some(guard) => mask & self.truth(guard),
            };
            match &step.action {
                Action::Nothing => at += 1,
                Action::Branch { target } => {
                    let taken = self.decide(at, *target, step.guard, mask, guarded);
                    (at, mask) = self.branch((at, mask), (*target, taken), &mut waiting);
                }
                Action::Table { index, targets } => {
                    self.scatter(*index, targets, guarded, &mut waiting);
                    mask &= !guarded;
                    at += 1;
                }
                Action::Exit => {
                    self.alive &= !guarded;
                    mask &= !guarded;
                    at += 1;
                }
                action => {
                    self.execute(at, action, guarded);
                    at += 1;
                }
            }
        }
    }

    /// Sends the lanes that take a branch to its target. Returns the step and the lanes with which
    /// the walk goes on.
    fn branch(
        &mut self,
        (at, mask): (usize, u32),
        (target, taken): (usize, u32),
        waiting: &mut Waiting,
    ) -> (usize, u32) {
        if taken != 0 && target <= at {
            self.arrive(at, target, taken);
        }
        if taken == mask {
            return (target, mask);
        }
        if taken != 0 {
            waiting.push(target, taken);
        }
        (at + 1, mask & !taken)
    }

    /// Sends each lane to the target that the index selects; one that is guessed selects any.
    fn scatter(&mut self, index: Register, targets: &[usize], mask: u32, waiting: &mut Waiting) {
        let index = &self.registers[index as usize];
        if index.guessed {
            self.assumed = true;
            self.counters.figures[Figure::UnknownBranches as usize] += 1.0;
        }
        let choices = targets.len().max(1) as u64;
        for lane in (0..LANES).filter(|lane| mask >> lane & 1 == 1) {
            let choice = (index.lane(lane) % choices) as usize;
            waiting.push(targets.get(choice).copied().unwrap_or(self.code.steps.len()), 1 << lane);
        }
    }

    fn truth(&self, guard: Guard) -> u32 {
        let truth = self.registers[guard.register as usize].truth();
        if guard.negated { !truth } else { truth }
    }

    /// Returns the lanes of `mask` that take a branch: those in `would`, unless a loop is to be
    /// left.
    fn decide(&mut self, at: usize, target: usize, guard: Option<Guard>, mask: u32, would: u32) -> u32 {
        let Some(guard) = guard else { return would };
        let guessed = self.registers[guard.register as usize].guessed;
        if guessed {
            self.assumed = true;
            self.counters.figures[Figure::UnknownBranches as usize] += 1.0;
        }
        for index in self.loops.around(at) {
            let (inside, next) =
                (self.loops.loops[index].contains(target), self.loops.loops[index].contains(at + 1));
            if inside != next {
                if guessed {
                    self.skips.guesses(index);
                }
                if self.skips.leaves(index) {
                    return if inside { 0 } else { mask };
                }
            }
        }
        would
    }

    /// All that is executed from now on concerns these lanes.
    pub(super) fn begin_all(&mut self, mask: u32) {
        self.alive = mask;
    }

    pub(super) fn execute(&mut self, at: usize, action: &Action, mask: u32) {
        match action {
            Action::Compute { form, to, from } => {
                if matches!(form.op, Op::Minimum | Op::Maximum) && self.skips.observing() {
                    self.observe_choice(at, from, mask);
                }
                let mut scratch = std::mem::take(&mut self.scratch);
                let from = from.map(|register| self.registers.get(register as usize));
                compute(*form, from, &mut scratch[0]);
                self.set(*to, &scratch[0], mask);
                self.scratch = scratch;
            }
            Action::Compare(comparison) => self.compare(at, comparison, mask),
            Action::Access(access) => self.access(at, access, mask),
            Action::Fragment { space, store, rows, element, address, stride } => {
                let address = self.registers[*address as usize].lane(mask.trailing_zeros() as usize % LANES);
                let stride = self.registers[*stride as usize].lane(mask.trailing_zeros() as usize % LANES);
                self.fragment(at, *space, *store, *rows, *element, address, stride, mask);
            }
            Action::Shuffle { mode, to, valid, value, lane, clamp } => {
                self.shuffle(*mode, [*to, *valid], [*value, *lane, *clamp], mask);
            }
            Action::Vote { vote, to, from, negated } => self.vote(*vote, *to, *from, *negated, mask),
            Action::Unknown { to, from, kind } => {
                let given = from.map(|register| self.registers.get(register as usize));
                let mut out = Value::of_lanes(|lane| {
                    let mix = |seed: u64, value: &Option<&Value>| {
                        let value = value.map_or(1, |value| value.lane(lane));
                        seed.rotate_left(17).wrapping_mul(0x2545_f491_4f6c_dd1d) ^ value
                    };
                    guess(given.iter().fold(at as u64, mix), *kind)
                });
                out.uniform = given.iter().flatten().all(|value| value.uniform);
                out.guessed = true;
                self.set(*to, &out, mask);
            }
            Action::Barrier => self.counters.figures[Figure::Barriers as usize] += 1.0,
            Action::UnknownCall => {
                let executed = if mask == 0 { 0.0 } else { 1.0 };
                self.counters.figures[Figure::UnknownCalls as usize] += executed;
            }
            Action::Nothing | Action::Branch { .. } | Action::Table { .. } | Action::Exit => {}
        }
    }

    fn set(&mut self, to: Register, value: &Value, mask: u32) {
        if let Some(register) = self.registers.get_mut(to as usize) {
            register.merge(value, mask, mask == self.alive);
        }
    }

    fn observe_choice(&mut self, at: usize, from: &[Register; 4], mask: u32) {
        let [Some(a), Some(b), ..] = from.map(|register| self.registers.get(register as usize)) else {
            return;
        };
        let mut out = Value::uniform(0);
        let Action::Compute { form, .. } = &self.code.steps[at].action else { return };
        compare(Comparison::Less, form.from, a, b, &mut out);
        self.skips.observe(at, mask, out.truth() & mask, a, b);
    }

    fn compare(&mut self, at: usize, comparison: &Compare, mask: u32) {
        let (a, b) = (&self.registers[comparison.a as usize], &self.registers[comparison.b as usize]);
        let mut scratch = std::mem::take(&mut self.scratch);
        let [out, opposite] = scratch.as_mut_slice() else { return };
        compare(comparison.relation, comparison.kind, a, b, out);
        // Two guesses that are equal in all lanes are one.
        if matches!(comparison.relation, Comparison::Equal | Comparison::NotEqual)
            && comparison.kind.bits() >= 32
            && self.arrays.are_known()
            && a.guessed
            && b.guessed
            && (0..LANES).filter(|lane| mask >> lane & 1 == 1).all(|lane| a.lane(lane) == b.lane(lane))
        {
            out.guessed = false;
        }
        if self.skips.observing() {
            self.skips.observe(at, mask, out.truth() & mask, a, b);
        }
        if comparison.opposite != NONE {
            (opposite.uniform, opposite.guessed) = (out.uniform, out.guessed);
            opposite.lanes = out.lanes.map(|truth| truth ^ 1);
        }
        if let Some((logic, guard)) = comparison.combine {
            let other = &self.registers[guard.register as usize];
            combine(out, logic, other, guard.negated);
            combine(opposite, logic, other, guard.negated);
        }
        if comparison.truth != 1 {
            out.lanes.iter_mut().for_each(|value| *value = if *value == 0 { 0 } else { comparison.truth });
        }
        self.set(comparison.to, out, mask);
        self.set(comparison.opposite, opposite, mask);
        self.scratch = scratch;
    }

    fn access(&mut self, at: usize, access: &Access, mask: u32) {
        let base = &self.registers[access.address as usize];
        let mut addresses = base.clone();
        let live = if addresses.uniform { 1 } else { LANES };
        for address in &mut addresses.lanes[..live] {
            *address = address.wrapping_add_signed(access.offset);
            if addresses.guessed {
                *address = self.arrays.within(*address, access.bytes.into());
            }
        }
        let counted = if access.lanes < 32 { mask & ones(access.lanes) as u32 } else { mask };
        if counted != 0 {
            self.count(at, access, &addresses, counted);
        }
        let size = u64::from(access.element.bits() / 8);
        let first = addresses.lane(mask.trailing_zeros() as usize % LANES);
        if addresses.guessed && counted != 0 {
            self.arrays.scattered(first, access.bytes.into());
        }
        if access.is_offset && counted != 0 && self.arrays.are_known() {
            self.arrays.offsets(first, size);
        }
        let offsets = access.direction == Direction::Load
            && access.bytes as u64 == size
            && matches!(access.element, Kind::Integer { .. });
        for (index, &to) in (0u64..).zip(&access.to) {
            if to == NONE {
                continue;
            }
            let mut loaded = addresses.clone();
            let most = self.most(access, index as usize);
            for value in &mut loaded.lanes[..live] {
                let address = value.wrapping_add(index * size);
                let guessed = guess(address, access.element) & most.mask;
                let below = most.below.map_or(guessed, |below| guessed % below);
                *value = offsets.then(|| self.arrays.offset_at(address)).flatten().unwrap_or(below);
            }
            loaded.guessed = true;
            match access.update.filter(|_| self.arrays.are_known()) {
                Some(Update::CompareAndSwap { expected, new }) => {
                    loaded = self.compare_and_swap(&addresses, expected, new, mask);
                }
                Some(Update::Exchange { new }) => self.exchange(&addresses, new, mask, &mut loaded),
                _ => {}
            }
            self.set(to, &loaded, mask);
        }
    }

    /// Returns the range of numbers that a load may give, for the `index`-th of its registers.
    fn most(&self, access: &Access, index: usize) -> Most {
        let (Kind::Integer { bits, .. }, true) = (access.element, self.arrays.are_known()) else {
            return Most { mask: u64::MAX, below: None };
        };
        let mask = match bits {
            32 | 64 => ones(bits - 1),
            _ => u64::MAX,
        };
        let bound = access.below.get(index).and_then(|&bound| self.registers.get(bound as usize));
        let below =
            bound.filter(|bound| bound.uniform && !bound.guessed).map(|bound| bound.lanes[0] & ones(bits));
        Most { mask, below: below.filter(|below| (2..=mask).contains(below)) }
    }

    /// Returns the result of a compare-and-swap. The first lane with an address finds what it
    /// expects, because other warps seldom come between; the others find what the lanes before them
    /// have left.
    fn compare_and_swap(&self, addresses: &Value, expected: Register, new: Register, mask: u32) -> Value {
        let [expected, new] = [expected, new].map(|register| &self.registers[register as usize]);
        let mut memory: Vec<(u64, u64)> = Vec::new();
        let mut found = expected.clone();
        for lane in (0..LANES).filter(|lane| mask >> lane & 1 == 1) {
            let address = addresses.lane(lane);
            match memory.iter_mut().find(|(other, _)| *other == address) {
                None => memory.push((address, new.lane(lane))),
                Some((_, there)) => {
                    found.uniform = false;
                    found.guessed |= new.guessed;
                    found.lanes[lane] = *there;
                    if *there == expected.lane(lane) {
                        *there = new.lane(lane);
                    }
                }
            }
        }
        found
    }

    /// Sets the result of an exchange with a known number. Such an exchange takes a lock or raises
    /// a flag, and finds 0; lanes with the address of another find what that one stored.
    fn exchange(&self, addresses: &Value, new: Register, mask: u32, found: &mut Value) {
        let new = &self.registers[new as usize];
        if new.guessed {
            return;
        }
        let mut memory: Vec<(u64, u64)> = Vec::new();
        found.uniform = false;
        for lane in (0..LANES).filter(|lane| mask >> lane & 1 == 1) {
            let address = addresses.lane(lane);
            match memory.iter_mut().find(|(other, _)| *other == address) {
                None => {
                    found.lanes[lane] = 0;
                    memory.push((address, new.lane(lane)));
                }
                Some((_, there)) => found.lanes[lane] = std::mem::replace(there, new.lane(lane)),
            }
        }
    }

    fn count(&mut self, at: usize, access: &Access, addresses: &Value, mask: u32) {
        self.assumed |= addresses.guessed;
        let bytes = u64::from(access.bytes);
        let space = access.space.unwrap_or_else(|| place(addresses.lane(mask.trailing_zeros() as usize)));
        let mask = if self.reduces(access, addresses) { 1 << mask.trailing_zeros() } else { mask };
        let lanes = f64::from(mask.count_ones());
        let request = addresses.request(mask, bytes);
        let figures = &mut self.counters.figures;
        let mut add = |figure: Figure, amount: f64| figures[figure as usize] += amount;
        match (access.direction, space) {
            (Direction::Atomic, _) => {
                add(Figure::AtomicRequests, 1.0);
                add(Figure::AtomicLanes, lanes);
                add(Figure::AtomicWavefronts, request.sharers() as f64);
                if space == StateSpace::Global {
                    let mut touched = [0; MOST_TOUCHED];
                    let sectors = request.touched(&mut touched);
                    add(Figure::AtomicSectors, sectors as f64);
                    self.contention.touch(&touched[..sectors]);
                    add(Figure::AtomicTurns, request.turns() as f64);
                } else {
                    add(Figure::SharedAtomicTurns, request.sharers() as f64);
                }
            }
            (_, StateSpace::Shared) => {
                add(Figure::SharedRequests, 1.0);
                add(Figure::SharedWavefronts, request.wavefronts().count as f64);
            }
            (_, StateSpace::Local) => {
                add(Figure::LocalRequests, 1.0);
                add(Figure::LocalSectors, request.local_sectors() as f64);
            }
            (_, StateSpace::Const) => {
                add(Figure::ConstantWavefronts, request.distinct_addresses() as f64);
            }
            (Direction::Load, StateSpace::Global) => {
                add(Figure::LoadRequests, 1.0);
                add(Figure::LoadSectors, request.sectors() as f64);
                add(Figure::LoadBytes, lanes * f64::from(access.bytes));
                let first = addresses.lane(mask.trailing_zeros() as usize);
                self.reach(request, at, first, false);
            }
            (Direction::Store, StateSpace::Global) => {
                add(Figure::StoreRequests, 1.0);
                add(Figure::StoreSectors, request.sectors() as f64);
                add(Figure::StoreBytes, lanes * f64::from(access.bytes));
                let first = addresses.lane(mask.trailing_zeros() as usize);
                self.reach(request, at, first, true);
            }
            _ => {}
        }
    }

    /// Whether one lane makes an atomic operation for all lanes.
    fn reduces(&self, access: &Access, addresses: &Value) -> bool {
        let Some(Update::Reduction { operand }) = access.update else { return false };
        let alike = self.registers.get(operand as usize).is_none_or(|operand| operand.uniform);
        addresses.uniform && alike && self.arrays.are_known()
    }

    /// Takes note of the sectors of global memory that a request of the step `at` touches, and of
    /// its first lane's address.
    fn reach(&mut self, request: Request<'_>, at: usize, address: u64, store: bool) {
        let mut touched = [0; MOST_TOUCHED];
        let count = request.touched(&mut touched);
        let sectors = &touched[..count];
        self.reuse.reach(sectors);
        let figures = &mut self.counters.figures;
        figures[Figure::Lines as usize] += lines(sectors);
        if store {
            figures[Figure::WrittenSectors as usize] += match self.arrays.are_known() {
                true => self.stored.access(at, address, sectors).launch,
                false => request.sectors() as f64,
            };
            return;
        }
        let new = self.reuse.access(at, address, sectors);
        figures[Figure::WarpSectors as usize] += new.warp;
        figures[Figure::BlockSectors as usize] += new.block;
        figures[Figure::LaunchSectors as usize] += new.launch;
    }

    #[expect(clippy::too_many_arguments, reason = "they are the operands of one instruction")]
    fn fragment(
        &mut self,
        at: usize,
        space: Option<StateSpace>,
        store: bool,
        rows: u32,
        element: u32,
        address: u64,
        stride: u64,
        mask: u32,
    ) {
        if mask == 0 {
            return;
        }
        let row = u64::from(rows * element);
        let starts = Value::of_lanes(|lane| {
            address.wrapping_add((lane as u64).wrapping_mul(stride).wrapping_mul(element.into()))
        });
        let lanes = ones(rows) as u32;
        let space = space.unwrap_or_else(|| place(address));
        let (requests_of, sectors_of, bytes_of) = match store {
            false => (Figure::LoadRequests, Figure::LoadSectors, Figure::LoadBytes),
            true => (Figure::StoreRequests, Figure::StoreSectors, Figure::StoreBytes),
        };
        let figures = &mut self.counters.figures;
        let mut add = |figure: Figure, amount: f64| figures[figure as usize] += amount;
        match space {
            StateSpace::Shared => {
                add(Figure::SharedRequests, 1.0);
                add(Figure::SharedWavefronts, (u64::from(rows) * row).div_ceil(128) as f64);
            }
            StateSpace::Global => {
                add(requests_of, 1.0);
                let request = starts.request(lanes, row);
                add(sectors_of, request.sectors() as f64);
                add(bytes_of, (u64::from(rows) * row) as f64);
                self.reach(request, at, address, store);
            }
            _ => {}
        }
    }

    fn shuffle(&mut self, mode: Shuffle, to: [Register; 2], from: [Register; 3], mask: u32) {
        let [value, distance, clamp] = from.map(|register| &self.registers[register as usize]);
        let source =
            |lane: usize| shuffled(mode, lane as u32, distance.lane(lane) as u32, clamp.lane(lane) as u32);
        let mut out = Value::of_lanes(|lane| value.lane(source(lane).0 as usize));
        out.uniform = value.uniform;
        out.guessed = value.guessed || distance.guessed;
        // One lane's number for all.
        let same =
            mode == Shuffle::Index && distance.uniform && clamp.uniform && clamp.lane(0) >> 8 & 31 == 0;
        out.uniform |= same && mask == self.alive;
        let valid = Value::of_lanes(|lane| source(lane).1.into());
        self.set(to[0], &out, mask);
        self.set(to[1], &valid, mask);
    }

    fn vote(&mut self, vote: Vote, to: Register, from: Register, negated: bool, mask: u32) {
        let (truth, guessed) = match self.registers.get(from as usize) {
            Some(value) => (if negated { !value.truth() } else { value.truth() }, value.guessed),
            None => (mask, false),
        };
        let truth = truth & mask;
        let result = match vote {
            Vote::All => u64::from(truth == mask),
            Vote::Any => u64::from(truth != 0),
            Vote::Uniform => u64::from(truth == mask || truth == 0),
            Vote::Ballot => truth.into(),
        };
        let value = Value { guessed, ..Value::uniform(result) };
        self.set(to, &value, mask);
    }
}

/// Lines of 128 bytes of sectors in rising order.
fn lines(sectors: &[u64]) -> f64 {
    sectors.chunk_by(|a, b| a / 4 == b / 4).count() as f64
}

/// The memory that a generic address is of.
fn place(address: u64) -> StateSpace {
    match address {
        0..LOCAL_BASE => StateSpace::Shared,
        LOCAL_BASE..LOCAL_END => StateSpace::Local,
        _ => StateSpace::Global,
    }
}

fn combine(value: &mut Value, logic: Logic, other: &Value, negated: bool) {
    let lanes = std::array::from_fn(|lane| {
        let (a, b) = (value.lane(lane), u64::from((other.lane(lane) != 0) != negated));
        match logic {
            Logic::And => a & b,
            Logic::Or => a | b,
            Logic::Xor => a ^ b,
        }
    });
    value.lanes = lanes;
    value.uniform &= other.uniform;
    value.guessed |= other.guessed;
}
