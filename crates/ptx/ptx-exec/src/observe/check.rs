//! Looks for defects: uses of values that were never written, races in shared memory, divergent
//! barriers.
//!
//! A value that nobody has written may be loaded, copied and discarded, as compilers do; it is a
//! defect where it decides a branch or an address, or where what is computed from it leaves the
//! thread. A copy in memory is as undefined as its source, and a defect only once it is used, or
//! the host reads all of it. What a call hands over in part counts as written, and so does what an
//! assertion or `printf` reads: compilers copy padding there.

use std::collections::HashMap;
use std::sync::Arc;

use apex_counts::Direction;

use crate::code::{BarrierKind, Builtin, Call, Callee, Op, Transfer};
use crate::launch::Launch;
use crate::launch::symbolization;
use crate::memory::shadow::Shadow;
use crate::observe::StepId;
use crate::observe::defects::{Defects, Link};
use crate::observe::happens_before::HappensBefore;
use crate::observe::probe::Moment;
use crate::observe::race::{Races, Stamp};
use crate::observe::request::{Request, requests};
use crate::observe::site::{Site, Sites};
use crate::observe::survey::{self, Spot};
use crate::observe::undefined::{Stored, Values};
use crate::operands::{AccessArgs, AccessKind};
use crate::registers::lanes::{WARP, each_lane};
use crate::warp::Warp;
use crate::warp::barrier::CLUSTER_BARRIER;

/// Names of defects, as they are reported.
pub(super) const UNINITIALIZED: &str = "uninitialized-read";
const RACE: &str = "shared-race";
const DIVERGENT: &str = "divergent-barrier";
const CONSTANT_WRITE: &str = "constant-write";
const BEYOND_SHARED: &str = "shared-out-of-bounds";

/// Shadows of allocations that are remembered.
const REMEMBERED: usize = 4;

/// Checks one block after the other.
pub(super) struct Checker<'l> {
    pub(super) launch: &'l Launch<'l>,
    block: [u32; 3],
    order: HappensBefore,
    /// The last barrier of the whole block.
    barrier: Option<StepId>,
    races: Races,
    pub(super) shared: Shadow,
    /// Local memory of all threads, one after the other.
    pub(super) local: Shadow,
    global: Vec<Arc<Shadow>>,
    pub(super) values: Values,
    /// Undefined values that the block has stored, by their first byte.
    pub(super) stored: HashMap<Spot, Stored>,
    pub(super) defects: Defects,
    /// Stores that are defects once the host reads what they stored.
    pub(super) latent: Defects,
}

impl<'l> Checker<'l> {
    /// A checker, if there is memory for what it keeps.
    pub(super) fn new(launch: &'l Launch<'l>) -> Option<Self> {
        Some(Checker {
            launch,
            block: [0; 3],
            order: HappensBefore::new(launch.warps() as usize * WARP),
            barrier: None,
            races: Races::new(launch.shared_bytes),
            shared: Shadow::new(0, launch.shared_bytes)?,
            local: Shadow::new(0, launch.local_of_block())?,
            global: Vec::new(),
            values: Values::default(),
            stored: HashMap::new(),
            defects: Defects::default(),
            latent: Defects::default(),
        })
    }

    pub(super) fn block_starts(&mut self, block: [u32; 3]) {
        self.block = block;
        self.order.meet_all();
        self.shared.clear();
        self.local.clear();
        self.values.clear();
        self.stored.clear();
        self.barrier = None;
    }

    pub(super) fn step(&mut self, moment: &Moment, sites: &[Site]) {
        self.check_guard(moment);
        let active = moment.lanes.mask;
        if active == 0 {
            return;
        }
        match &moment.step.op {
            Op::Access { args, .. } => self.access(moment, &sites[moment.pc as usize], args),
            Op::Matrix(_) => {
                self.check_uses(moment, "multiplies");
                self.order.meet(&threads(moment.warp, active), None);
                self.requests(moment, &sites[moment.pc as usize]);
                self.values.define_results(moment);
            }
            Op::Lanes { .. } => self.values.compute(moment, sites[moment.pc as usize].treatment),
            Op::Warp { members, .. } => {
                if members.is_some() {
                    self.order.meet(&threads(moment.warp, active), None);
                }
                self.values.compute(moment, sites[moment.pc as usize].treatment);
            }
            Op::Image(_) => self.image(moment),
            Op::Barrier { kind, barrier, .. } => {
                self.check_uses(moment, "waits at a barrier with");
                self.values.define_results(moment);
                if *kind == BarrierKind::Arrive {
                    // SAFETY: the frame has the registers of the step; the barrier is a word.
                    let barrier =
                        unsafe { moment.lanes.source::<u32>(*barrier) }[active.trailing_zeros() as usize];
                    if barrier < 16 {
                        self.order.arrive(&threads(moment.warp, active), barrier);
                    }
                }
            }
            Op::Call(call) => self.call(moment, call),
            Op::Results(transfers) => {
                let inner = self.inner_frame(moment);
                for transfer in transfers {
                    let Transfer { caller, callee, bytes } = *transfer;
                    self.hand_over(
                        moment,
                        inner.saturating_add(callee),
                        moment.local.saturating_add(caller),
                        bytes,
                    );
                }
            }
            Op::JumpTable { .. } => self.check_uses(moment, "branches on"),
            Op::Fence => threads(moment.warp, active).into_iter().for_each(|thread| self.order.fence(thread)),
            _ => self.values.define_results(moment),
        }
    }

    /// All that `barrier` waits for have come.
    pub(super) fn barrier_opens(&mut self, barrier: u32, warps: &[Warp], sites: &Sites) {
        let mut met = Vec::new();
        let mut everyone = true;
        for warp in warps {
            let waiting: Vec<(u32, StepId)> = warp.waiting_at(barrier).collect();
            let mask = waiting.iter().fold(0, |mask, (here, _)| mask | here);
            everyone &= mask == warp.live;
            met.extend(threads(warp.index(), mask));
            if let Some((_, place)) = waiting
                .iter()
                .copied()
                .find(|(_, place)| sites.of_function(place.0)[place.1 as usize].aligned)
            {
                self.check_barrier(warp, &waiting, mask, place);
            }
        }
        // That of a cluster orders what comes before arrival; to order what comes before its end
        // hides races only.
        match everyone || barrier == CLUSTER_BARRIER {
            true => {
                self.barrier = warps.iter().find_map(|warp| Some(warp.waiting_at(barrier).next()?.1));
                self.order.meet_all();
            }
            false => self.order.meet(&met, Some(barrier)),
        }
    }

    /// An aligned barrier wants all threads of the warp, at the same instruction.
    fn check_barrier(&mut self, warp: &Warp, waiting: &[(u32, StepId)], mask: u32, place: StepId) {
        let whole = self.launch.lanes_of(warp.index());
        let other = waiting.iter().map(|&(_, place)| place).find(|&other| other != place);
        let missing = whole & !mask;
        let what = match other {
            Some(_) => "threads of a warp wait at different barrier instructions".to_owned(),
            None if missing & warp.live != 0 => {
                format!("{} of {} threads of a warp take part", mask.count_ones(), whole.count_ones())
            }
            None if missing != 0 => format!(
                "{} of {} threads of a warp take part, the others have exited",
                mask.count_ones(),
                whole.count_ones()
            ),
            None => return,
        };
        let lane = mask.trailing_zeros();
        let who = self.who(warp.index() * WARP as u32 + lane);
        self.defects.note(DIVERGENT, place, other, 1, || (format!("{what}: {who} does"), Vec::new()));
    }

    fn access(&mut self, moment: &Moment, site: &Site, args: &AccessArgs) {
        self.check_address(moment, args);
        if matches!(args.kind, AccessKind::Bulk | AccessKind::Tensor) {
            self.requests(moment, site);
            if args.data[1].is_some() {
                self.synchronize(moment, &survey::generic_spots(moment, args.data[1]));
            }
            return;
        }
        if args.kind == AccessKind::Mbarrier {
            self.values.define_results(moment);
            return self.synchronize(moment, &survey::spots(moment, args));
        }
        let Some((direction, bytes)) = site.access.or_else(|| moved_by_call(args)) else {
            return self.values.define_results(moment);
        };
        if args.kind == AccessKind::Copy {
            let (from, to) = (survey::sources(moment, args), survey::spots(moment, args));
            self.copy(moment, &from, &to, args.copied);
            self.race(moment, site, &to, args.copied, true, |_, _| 0);
            return;
        }
        let spots = survey::spots(moment, args);
        self.check_shared_bounds(moment, &spots, bytes);
        self.order_globally(moment, site, direction, &spots);
        let writes = direction != Direction::Load;
        let value = |lane: usize, byte: u32| stored_byte(moment, args, bytes, lane, byte);
        match direction {
            Direction::Load => self.load(moment, args, &spots, bytes),
            Direction::Store if args.kind == AccessKind::Store => self.store(moment, args, &spots, bytes),
            Direction::Store => {
                self.write(moment, &spots, bytes);
                self.values.define_results(moment);
            }
            Direction::Atomic => {
                self.read(moment, &spots, bytes);
                self.write(moment, &spots, bytes);
                self.values.define_results(moment);
            }
        }
        self.race(moment, site, &spots, bytes, writes, value);
    }

    /// Looks at each of the requests of a step.
    fn requests(&mut self, moment: &Moment, site: &Site) {
        for request in requests(moment) {
            let Request { ref spots, bytes, direction, .. } = request;
            let writes = direction == Direction::Store;
            request.view(moment, |moment| {
                match writes {
                    true => self.write(moment, spots, bytes),
                    false => self.read(moment, spots, bytes),
                }
                self.race(moment, site, spots, bytes, writes, |_, _| 0);
            });
        }
    }

    /// The lanes change objects in shared memory by which threads wait for each other.
    fn synchronize(&mut self, moment: &Moment, objects: &[Spot; WARP]) {
        each_lane(moment.lanes.mask, |lane| {
            if let Spot::Shared(offset) = objects[lane] {
                self.order.synchronize(moment.warp * WARP as u32 + lane as u32, offset);
            }
        });
    }

    /// Strong accesses to global memory pass on what threads had done before a fence: locks and
    /// barriers of the whole grid are made of them.
    fn order_globally(&mut self, moment: &Moment, site: &Site, direction: Direction, spots: &[Spot; WARP]) {
        if !site.synchronizes {
            return;
        }
        each_lane(moment.lanes.mask, |lane| {
            if let Spot::Global(_) = spots[lane] {
                let thread = moment.warp * WARP as u32 + lane as u32;
                if direction != Direction::Load {
                    self.order.signal(thread, site.releases);
                }
                if direction != Direction::Store {
                    self.order.observe(thread);
                }
            }
        });
    }

    /// Complains about the lanes that read what was never written.
    pub(super) fn read(&mut self, moment: &Moment, spots: &[Spot; WARP], bytes: u32) {
        let mut unwritten = 0u32;
        each_lane(moment.lanes.mask, |lane| {
            unwritten |= u32::from(!self.is_written(spots[lane], bytes)) << lane;
        });
        if unwritten == 0 {
            return;
        }
        let lane = unwritten.trailing_zeros() as usize;
        let who = self.who(moment.warp * WARP as u32 + lane as u32);
        let place = (moment.function, moment.pc);
        let (spot, times) = (spots[lane], unwritten.count_ones().into());
        let link = self.memory_of(moment.function, moment.local, spot);
        let launch = self.launch;
        self.defects.note(UNINITIALIZED, place, None, times, || {
            let at = describe(launch, (moment.function, moment.local), spot);
            (format!("{who} uses {bytes} bytes that nobody has written, {at}"), vec![link])
        });
    }

    pub(super) fn is_written(&mut self, spot: Spot, bytes: u32) -> bool {
        match spot {
            Spot::Param => true,
            Spot::Shared(offset) => self.shared.is_written(offset, bytes.into()),
            Spot::Local(thread, offset) => {
                self.local.is_written(self.local_place(thread, offset), bytes.into())
            }
            Spot::Global(address) => {
                self.shadow(address).is_none_or(|shadow| shadow.is_written(address, bytes.into()))
            }
        }
    }

    /// The variable or allocation that a spot lies in, as seen from a function whose frame begins
    /// at `frame`.
    pub(super) fn memory_of(&mut self, function: u32, frame: u32, spot: Spot) -> Link {
        Link::Variable(match spot {
            Spot::Global(address) => match self.shadow(address) {
                Some(shadow) => format!("{:#x}", shadow.start()),
                None => "global".to_owned(),
            },
            Spot::Shared(offset) => symbolization::shared_variable(self.launch, offset),
            Spot::Local(_, offset) => symbolization::local_variable(self.launch, function, frame, offset),
            Spot::Param => String::new(),
        })
    }

    pub(super) fn write(&mut self, moment: &Moment, spots: &[Spot; WARP], bytes: u32) {
        let mut constants = 0u32;
        each_lane(moment.lanes.mask, |lane| match spots[lane] {
            Spot::Param => {}
            Spot::Shared(offset) => self.shared.mark(offset, bytes.into()),
            Spot::Local(thread, offset) => self.local.mark(self.local_place(thread, offset), bytes.into()),
            Spot::Global(address) => match self.shadow(address) {
                Some(shadow) => shadow.mark(address, bytes.into()),
                None => constants |= u32::from(self.launch.memory.is_constant(address)) << lane,
            },
        });
        if constants != 0 {
            self.note_access(CONSTANT_WRITE, moment, constants, spots, |at| {
                format!("writes {bytes} bytes of a constant variable, {at}")
            });
        }
    }

    /// Complains about the lanes that access shared memory which the launch did not ask for: GPUs
    /// allocate it in units, and do not notice.
    fn check_shared_bounds(&mut self, moment: &Moment, spots: &[Spot; WARP], bytes: u32) {
        let (end, allocated) = (self.launch.shared_bytes, self.launch.allocated_shared());
        let mut beyond = 0u32;
        each_lane(moment.lanes.mask, |lane| {
            let Spot::Shared(offset) = spots[lane] else { return };
            // What lies beyond the unit ends the kernel.
            let reaches = offset.saturating_add(bytes.into());
            beyond |= u32::from(reaches > end && reaches <= allocated) << lane;
        });
        if beyond != 0 {
            self.note_access(BEYOND_SHARED, moment, beyond, spots, |at| {
                format!("accesses {bytes} bytes of shared memory beyond the {end} of the launch, {at}")
            });
        }
    }

    /// Notes a defect of an access by `lanes`; `text` says what the first of them does.
    fn note_access(
        &mut self,
        kind: &'static str,
        moment: &Moment,
        lanes: u32,
        spots: &[Spot; WARP],
        text: impl FnOnce(&str) -> String,
    ) {
        let lane = lanes.trailing_zeros() as usize;
        let who = self.who(moment.warp * WARP as u32 + lane as u32);
        let (launch, spot) = (self.launch, spots[lane]);
        let (place, scope) = ((moment.function, moment.pc), (moment.function, moment.local));
        self.defects.note(kind, place, None, lanes.count_ones().into(), || {
            (format!("{who} {}", text(&describe(launch, scope, spot))), Vec::new())
        });
    }

    /// Looks for races in shared memory.
    fn race(
        &mut self,
        moment: &Moment,
        site: &Site,
        spots: &[Spot; WARP],
        bytes: u32,
        write: bool,
        value: impl Fn(usize, u32) -> u8,
    ) {
        let place = (moment.function, moment.pc);
        each_lane(moment.lanes.mask, |lane| {
            let Spot::Shared(offset) = spots[lane] else { return };
            let thread = moment.warp * WARP as u32 + lane as u32;
            if site.synchronizes {
                self.order.synchronize(thread, offset);
            }
            let stamp = Stamp {
                clock: self.order.clock(thread),
                site: place,
                thread: thread as u16,
                value: 0,
                atomic: site.synchronizes,
                write,
            };
            let found = (0..bytes).find_map(|byte| {
                let value = if write { value(lane, byte) } else { 0 };
                let stamp = Stamp { value, ..stamp };
                let earlier = self.races.access(&self.order, offset + u64::from(byte), stamp)?;
                Some((earlier, offset + u64::from(byte)))
            });
            if let Some((earlier, byte)) = found {
                self.note_race(stamp, earlier, byte);
            }
        });
    }

    /// Two accesses to a byte of shared memory race. Whichever comes first in one run or the other,
    /// it is the same race: the place that is later in the code is reported first.
    fn note_race(&mut self, one: Stamp, other: Stamp, offset: u64) {
        let (first, second) = if other.site > one.site { (other, one) } else { (one, other) };
        let (who, whom) = (self.who(first.thread.into()), self.thread(second.thread.into()));
        let verb = |stamp: Stamp| if stamp.write { "writes" } else { "reads" };
        let (launch, barrier) = (self.launch, self.barrier);
        self.defects.note(RACE, first.site, Some(second.site), 1, || {
            let at = symbolization::shared(launch, offset);
            let text = format!(
                "{who} {} {at}, which thread {whom} {} with no barrier between",
                verb(first),
                verb(second)
            );
            let variable = symbolization::shared_variable(launch, offset);
            (text, vec![Link::Barrier(barrier), Link::Variable(variable)])
        });
    }

    /// The frame of the callee is new; what it is handed lies there.
    fn call(&mut self, moment: &Moment, call: &Call) {
        self.check_uses(moment, "calls");
        let inner = self.inner_frame(moment);
        match call.callee {
            // What a builtin returns lies at the start of its frame.
            Callee::Builtin(builtin) => {
                self.mark_local(moment, inner, 16);
                if let Builtin::Runtime(runtime) = builtin {
                    self.mark_output(moment, call, runtime.output_bytes());
                }
            }
            Callee::Function(function) => {
                let bytes = self.launch.code(function).frame_bytes;
                self.each_local(moment, inner, bytes, |local, at, bytes| local.unmark(at, bytes));
            }
            Callee::Indirect(_) => {}
        }
        for transfer in &call.arguments {
            let Transfer { caller, callee, bytes } = *transfer;
            self.hand_over(moment, moment.local.saturating_add(caller), inner.saturating_add(callee), bytes);
        }
    }

    /// Marks the `bytes` bytes that a function of the device runtime writes to its first argument's
    /// target.
    fn mark_output(&mut self, moment: &Moment, call: &Call, bytes: u32) {
        let Some(pointer) = call.arguments.first().filter(|pointer| bytes > 0 && pointer.bytes == 8) else {
            return;
        };
        let offset = u64::from(moment.local) + u64::from(pointer.caller);
        let mut spots = [Spot::Param; WARP];
        each_lane(moment.lanes.mask, |lane| {
            let Some(at) = moment.spaces.local(lane, offset, 8) else { return };
            // SAFETY: `local` has found the bytes inside the lane's memory.
            let address = unsafe { at.cast::<u64>().read_unaligned() };
            spots[lane] = survey::generic_spot(moment, lane, address);
        });
        self.write(moment, &spots, bytes);
    }

    /// Copies the marks of bytes that a call hands over: written, unless none of them is.
    fn hand_over(&mut self, moment: &Moment, from: u32, to: u32, bytes: u32) {
        let launch = self.launch;
        each_lane(moment.lanes.mask, |lane| {
            if u64::from(from.max(to)) + u64::from(bytes) > launch.local_bytes {
                return;
            }
            let thread = moment.warp * WARP as u32 + lane as u32;
            let spots = [from, to].map(|offset| Spot::Local(thread, offset.into()));
            let [from, to] = [from, to].map(|offset| self.local_place(thread, offset.into()));
            if bytes == 0 || (0..u64::from(bytes)).any(|byte| self.local.is_written(from + byte, 1)) {
                return self.local.mark(to, bytes.into());
            }
            self.local.unmark(to, bytes.into());
            if let Some(&known) = self.stored.get(&spots[0]) {
                self.stored.insert(spots[1], known);
            }
        });
    }

    fn mark_local(&mut self, moment: &Moment, offset: u32, bytes: u32) {
        self.each_local(moment, offset, bytes, |local, at, bytes| local.mark(at, bytes));
    }

    /// Shows where the bytes of each thread's local memory lie that exist.
    fn each_local(&self, moment: &Moment, offset: u32, bytes: u32, look: impl Fn(&Shadow, u64, u64)) {
        let bytes = u64::from(bytes).min(self.launch.local_bytes.saturating_sub(offset.into()));
        each_lane(moment.lanes.mask, |lane| {
            let thread = moment.warp * WARP as u32 + lane as u32;
            look(&self.local, self.local_place(thread, offset.into()), bytes);
        });
    }

    /// Returns the start of a callee's frame.
    fn inner_frame(&self, moment: &Moment) -> u32 {
        let frame_bytes = self.launch.code(moment.function).frame_bytes;
        let end = moment.local.saturating_add(frame_bytes);
        end.checked_next_multiple_of(self.launch.local_align).unwrap_or(u32::MAX)
    }

    pub(super) fn local_place(&self, thread: u32, offset: u64) -> u64 {
        u64::from(thread) * self.launch.local_bytes + offset
    }

    /// The shadow of the allocation that holds an address.
    pub(super) fn shadow(&mut self, address: u64) -> Option<Arc<Shadow>> {
        if let Some(index) = self.global.iter().position(|shadow| shadow.holds(address, 1)) {
            return Some(self.global[index].clone());
        }
        let shadow = self.launch.memory.shadow(address)?;
        self.global.truncate(REMEMBERED - 1);
        self.global.insert(0, shadow.clone());
        Some(shadow)
    }

    pub(super) fn who(&self, thread: u32) -> String {
        let [x, y, z] = self.block;
        format!("block ({x},{y},{z}), thread {}", self.thread(thread))
    }

    fn thread(&self, thread: u32) -> String {
        let [x, y, z] = self.launch.thread(thread);
        format!("({x},{y},{z})")
    }
}

/// The access by which a call moves a register to a frame or back: its mnemonic is no memory
/// instruction's.
fn moved_by_call(args: &AccessArgs) -> Option<(Direction, u32)> {
    match args.kind {
        AccessKind::Load if args.copied > 0 => Some((Direction::Load, args.copied)),
        AccessKind::Store if args.copied > 0 => Some((Direction::Store, args.copied)),
        _ => None,
    }
}

/// The threads of the lanes of a mask, counted through the block.
fn threads(warp: u32, mask: u32) -> Vec<u32> {
    let mut threads = Vec::with_capacity(WARP);
    each_lane(mask, |lane| threads.push(warp * WARP as u32 + lane as u32));
    threads
}

/// Describes a spot in words.
pub(super) fn describe(launch: &Launch, (function, frame): (u32, u32), spot: Spot) -> String {
    match spot {
        Spot::Global(address) => format!("at {address:#x}, {}", launch.memory.describe(address)),
        Spot::Shared(offset) => symbolization::shared(launch, offset),
        Spot::Local(_, offset) => symbolization::local(launch, function, frame, offset),
        Spot::Param => "among the parameters".to_owned(),
    }
}

/// A byte of what a lane stores.
fn stored_byte(moment: &Moment, args: &AccessArgs, bytes: u32, lane: usize, byte: u32) -> u8 {
    let count = args.data.iter().filter(|reg| reg.is_some()).count().max(1) as u32;
    let each = (bytes / count).max(1);
    let reg = args.data[(byte / each).min(7) as usize];
    if args.kind != AccessKind::Store || !reg.is_some() {
        return 0;
    }
    // SAFETY: the frame has the registers of the step, in the class that it says.
    let value = unsafe {
        match args.wide {
            true => moment.lanes.source::<u64>(reg)[lane],
            false => moment.lanes.source::<u32>(reg)[lane].into(),
        }
    };
    (value >> (8 * (byte % each))) as u8
}
