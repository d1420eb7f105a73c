//! Looking for defects: reads of what was never written, races in shared memory, divergent barriers.
//!
//! A defect is told once for each place (two places for a race), with a count. What a function is handed in a call and
//! what it returns counts as written, and so does what an assertion or `printf` reads: compilers copy padding there.

use std::collections::BTreeMap;
use std::sync::Arc;

use trace::counts::{Defect, Direction};

use super::super::block::CLUSTER_BARRIER;
use super::super::code::{AccessArgs, AccessKind, BarrierKind, Op, Transfer};
use super::super::lanes::{WARP, each_lane};
use super::super::launch::Launch;
use super::super::probe::Moment;
use super::super::shadow::Shadow;
use super::super::warp::Warp;
use super::super::whereabouts;
use super::order::Order;
use super::race::{Races, Stamp};
use super::request::{Request, requests};
use super::site::{Site, Sites};
use super::survey::{self, Spot};

/// Names of defects, as they are reported.
const UNINITIALIZED: &str = "uninitialized-read";
const RACE: &str = "shared-race";
const DIVERGENT: &str = "divergent-barrier";

/// Shadows of allocations that are remembered.
const REMEMBERED: usize = 4;

/// A step: function and index.
type StepId = (u32, u32);

/// Defects by what they are and where.
#[derive(Default)]
pub(super) struct Defects {
    found: BTreeMap<(&'static str, StepId, Option<StepId>), (String, u64)>,
}

impl Defects {
    fn note(
        &mut self,
        kind: &'static str,
        place: StepId,
        other: Option<StepId>,
        times: u64,
        text: impl FnOnce() -> String,
    ) {
        self.found.entry((kind, place, other)).or_insert_with(|| (text(), 0)).1 += times;
    }

    /// Adds what another worker has found.
    pub(super) fn absorb(&mut self, other: Defects) {
        for (key, (text, count)) in other.found {
            self.found.entry(key).or_insert((text, 0)).1 += count;
        }
    }

    pub(super) fn finish(self, kernel: &str, sites: &Sites) -> Vec<Defect> {
        let defects = self.found.into_iter().map(|((kind, place, other), (text, count))| Defect {
            kind: kind.to_owned(),
            kernel: kernel.to_owned(),
            text,
            place: sites.place(place.0, place.1),
            other: other.map(|(function, pc)| sites.place(function, pc)),
            count,
        });
        defects.collect()
    }
}

/// Checks one block after the other.
pub(super) struct Checker<'l> {
    launch: &'l Launch<'l>,
    block: [u32; 3],
    order: Order,
    races: Races,
    shared: Shadow,
    /// Local memory of all threads, one after the other.
    local: Shadow,
    global: Vec<Arc<Shadow>>,
    pub(super) defects: Defects,
}

impl<'l> Checker<'l> {
    /// A checker, if there is memory for what it keeps.
    pub(super) fn new(launch: &'l Launch<'l>) -> Option<Self> {
        Some(Checker {
            launch,
            block: [0; 3],
            order: Order::new(launch.warps() as usize * WARP),
            races: Races::new(launch.shared_bytes),
            shared: Shadow::new(0, launch.shared_bytes)?,
            local: Shadow::new(0, launch.local_of_block())?,
            global: Vec::new(),
            defects: Defects::default(),
        })
    }

    pub(super) fn block_starts(&mut self, block: [u32; 3]) {
        self.block = block;
        self.order.meet_all();
        self.shared.clear();
        self.local.clear();
    }

    pub(super) fn step(&mut self, moment: &Moment, sites: &[Site]) {
        let active = moment.lanes.mask;
        if active == 0 {
            return;
        }
        match &moment.step.op {
            Op::Access { args, .. } => self.access(moment, &sites[moment.pc as usize], args),
            Op::Matrix(_) => {
                self.order.meet(&threads(moment.warp, active), None);
                self.requests(moment, &sites[moment.pc as usize]);
            }
            Op::Warp { members, .. } if members.is_some() => {
                self.order.meet(&threads(moment.warp, active), None)
            }
            Op::Barrier { kind: BarrierKind::Arrive, barrier, .. } => {
                // SAFETY: the frame has the registers of the step; the barrier is a word.
                let barrier =
                    unsafe { moment.lanes.source::<u32>(*barrier) }[active.trailing_zeros() as usize];
                if barrier < 16 {
                    self.order.arrive(&threads(moment.warp, active), barrier);
                }
            }
            Op::Call(call) => {
                let inner = self.inner_frame(moment);
                self.hand_over(moment, &call.arguments, |transfer| inner + transfer.callee);
                // What a builtin returns lies at the start of its frame.
                self.mark_local(moment, inner, 16);
            }
            Op::Results(transfers) => {
                self.hand_over(moment, transfers, |transfer| moment.local + transfer.caller)
            }
            _ => {}
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
            if let Some((_, place)) =
                waiting.iter().copied().find(|(_, place)| sites.of(place.0)[place.1 as usize].aligned)
            {
                self.check_barrier(warp, &waiting, mask, place);
            }
        }
        // That of a cluster orders what comes before arrival; to order what comes before its end hides races only.
        match everyone || barrier == CLUSTER_BARRIER {
            true => self.order.meet_all(),
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
        self.defects.note(DIVERGENT, place, other, 1, || format!("{what}: {who} does"));
    }

    fn access(&mut self, moment: &Moment, site: &Site, args: &AccessArgs) {
        if args.kind == AccessKind::Bulk {
            self.requests(moment, site);
            if args.data[1].is_some() {
                self.synchronize(moment, &survey::generic_spots(moment, args.data[1]));
            }
            return;
        }
        if args.kind == AccessKind::Mbarrier {
            return self.synchronize(moment, &survey::spots(moment, args));
        }
        let Some((direction, bytes)) = site.access else { return };
        if args.kind == AccessKind::Copy {
            let (from, to) = (survey::sources(moment, args), survey::spots(moment, args));
            self.read(moment, &from, args.copied);
            self.write(moment, &to, args.copied);
            self.race(moment, site, &to, args.copied, true, |_, _| 0);
            return;
        }
        let spots = survey::spots(moment, args);
        let writes = direction != Direction::Load;
        let value = |lane: usize, byte: u32| stored_byte(moment, args, bytes, lane, byte);
        if direction != Direction::Store {
            self.read(moment, &spots, bytes);
        }
        if writes {
            self.write(moment, &spots, bytes);
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

    /// Complains about the lanes that read what was never written.
    fn read(&mut self, moment: &Moment, spots: &[Spot; WARP], bytes: u32) {
        let mut unwritten = 0u32;
        each_lane(moment.lanes.mask, |lane| {
            let written = match spots[lane] {
                Spot::Param => true,
                Spot::Shared(offset) => self.shared.is_written(offset, bytes.into()),
                Spot::Local(thread, offset) => {
                    self.local.is_written(self.local_place(thread, offset), bytes.into())
                }
                Spot::Global(address) => {
                    self.shadow(address).is_none_or(|shadow| shadow.is_written(address, bytes.into()))
                }
            };
            unwritten |= u32::from(!written) << lane;
        });
        if unwritten == 0 {
            return;
        }
        let lane = unwritten.trailing_zeros() as usize;
        let who = self.who(moment.warp * WARP as u32 + lane as u32);
        let place = (moment.function, moment.pc);
        let (launch, spot) = (self.launch, spots[lane]);
        self.defects.note(UNINITIALIZED, place, None, unwritten.count_ones().into(), || {
            format!("{who} reads {bytes} bytes that nobody has written, {}", describe(launch, moment, spot))
        });
    }

    fn write(&mut self, moment: &Moment, spots: &[Spot; WARP], bytes: u32) {
        each_lane(moment.lanes.mask, |lane| match spots[lane] {
            Spot::Param => {}
            Spot::Shared(offset) => self.shared.mark(offset, bytes.into()),
            Spot::Local(thread, offset) => self.local.mark(self.local_place(thread, offset), bytes.into()),
            Spot::Global(address) => {
                if let Some(shadow) = self.shadow(address) {
                    shadow.mark(address, bytes.into());
                }
            }
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
                self.races.access(&self.order, offset + u64::from(byte), stamp)
            });
            if let Some(earlier) = found {
                let (who, other) = (self.who(thread), self.thread(earlier.thread.into()));
                let verb = |write: bool| if write { "writes" } else { "reads" };
                let launch = self.launch;
                // Whichever of the two comes first in one run or the other, it is the same race.
                let (first, second) = (place.min(earlier.site), place.max(earlier.site));
                self.defects.note(RACE, second, Some(first), 1, || {
                    let at = describe(launch, moment, spots[lane]);
                    format!(
                        "{who} {} {bytes} bytes {at}, which thread {other} {} with no barrier between",
                        verb(write),
                        verb(earlier.write)
                    )
                });
            }
        });
    }

    fn hand_over(&mut self, moment: &Moment, transfers: &[Transfer], to: impl Fn(&Transfer) -> u32) {
        for transfer in transfers {
            self.mark_local(moment, to(transfer), transfer.bytes);
        }
    }

    fn mark_local(&mut self, moment: &Moment, offset: u32, bytes: u32) {
        each_lane(moment.lanes.mask, |lane| {
            let thread = moment.warp * WARP as u32 + lane as u32;
            if u64::from(offset) + u64::from(bytes) <= self.launch.local_bytes {
                self.local.mark(self.local_place(thread, offset.into()), bytes.into());
            }
        });
    }

    /// Where the frame of a function begins that is called here.
    fn inner_frame(&self, moment: &Moment) -> u32 {
        let frame_bytes = self.launch.code(moment.function).frame_bytes;
        moment.local.saturating_add(frame_bytes).next_multiple_of(self.launch.local_align)
    }

    fn local_place(&self, thread: u32, offset: u64) -> u64 {
        u64::from(thread) * self.launch.local_bytes + offset
    }

    /// The shadow of the allocation that holds an address.
    fn shadow(&mut self, address: u64) -> Option<Arc<Shadow>> {
        if let Some(index) = self.global.iter().position(|shadow| shadow.holds(address, 1)) {
            return Some(self.global[index].clone());
        }
        let shadow = self.launch.memory.shadow(address)?;
        self.global.truncate(REMEMBERED - 1);
        self.global.insert(0, shadow.clone());
        Some(shadow)
    }

    fn who(&self, thread: u32) -> String {
        let [x, y, z] = self.block;
        format!("block ({x},{y},{z}), thread {}", self.thread(thread))
    }

    fn thread(&self, thread: u32) -> String {
        let [x, y, z] = self.launch.thread(thread);
        format!("({x},{y},{z})")
    }
}

/// The threads of the lanes of a mask, counted through the block.
fn threads(warp: u32, mask: u32) -> Vec<u32> {
    let mut threads = Vec::with_capacity(WARP);
    each_lane(mask, |lane| threads.push(warp * WARP as u32 + lane as u32));
    threads
}

/// Where a spot lies, in words.
fn describe(launch: &Launch, moment: &Moment, spot: Spot) -> String {
    match spot {
        Spot::Global(address) => format!("at {address:#x}, {}", launch.memory.describe(address)),
        Spot::Shared(offset) => whereabouts::shared(launch, offset),
        Spot::Local(_, offset) => whereabouts::local(launch, moment.function, moment.local, offset),
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
