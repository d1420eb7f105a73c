//! The duration of a launch, computed from the work that it executes and from rates of the device.
//!
//! [`Demand`] is what a launch asks of each part of a device: issue slots, arithmetic units, L1,
//! L2, memory, the time of its longest chain of instructions that wait for each other. [`Rates`]
//! say how fast each part is. From both follows the time of each part ([`Parts`]). Parts of one
//! kind (arithmetic; L1; what lies behind it; latency) hide each other almost wholly, kinds only
//! partly: times are joined as `(a^p + b^p + ...)^(1/p)`, with a larger `p` within a kind.
//!
//! Caches: a load that the block's own loads have not brought before goes to L2; if all that the
//! launch touches does not fit into L2, what no other block has loaded before comes from memory,
//! and stores go there, which costs more where a sector is not written as a whole. Each of the
//! loads that wait for each other takes as long as the slowest of the sectors that it waits for.

use crate::case::{Basis, Device, Placed};
use crate::throughput::{LEVELS, Loads, join};
use ptx::Class;
use ptx_estimate::Work;
use std::ops::Range;

/// A rate of a device, or how its parts work together. Cycles are those of a multiprocessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Microseconds to start and end a kernel.
    Start,
    /// The exponent by which kinds of parts are joined, ...
    Overlap,
    /// ... and parts of a kind.
    OverlapWithin,
    /// Cycles to start a block, ...
    Block,
    /// ... and each of its warps.
    Warp,
    /// Cycles until a load has what L1 holds, ...
    L1Latency,
    /// ... L2, ...
    L2Latency,
    /// ... memory.
    MemoryLatency,
    /// Sectors that a load on the critical path waits for, as a multiple of those it is counted
    /// with.
    Waiting,
    /// Length of the critical path, of what instructions' latencies come to.
    Path,
    /// Cycles that a barrier takes.
    Barrier,
    /// Bytes that L2 gives a multiprocessor in a cycle.
    L2Bytes,
    /// Bytes of a store there, as a multiple of those of a load.
    StoreBytes,
    /// Memory's bytes of full rate, over those moved.
    Memory,
    /// Part of L2 that data may fill before half of it is lost between launches, ...
    L2Share,
    /// ... and how steeply that sets in.
    L2Edge,
    /// Sectors that memory moves more for one that is written in part.
    Partial,
    /// Cycles of L1 for a request, ...
    Request,
    /// ... for each line of it, ...
    Line,
    /// ... for each sector.
    Sector,
    /// Cycles of a wavefront of shared memory, ...
    Shared,
    /// ... of an atomic operation there that others of the warp wait for.
    SharedAtomic,
    /// Cycles of a sector of local memory, ...
    Local,
    /// ... of one of a register that was spilled.
    Spill,
    /// Cycles of an address of constant memory.
    Constant,
    /// Turns of atomic operations in a microsecond that a slice of L2 takes.
    Atomic,
    /// Sectors side by side that one slice has.
    SliceSectors,
    /// Slices of L2.
    Slices,
    /// Cycles of an instruction's units: integers, ...
    Integer,
    /// ... double precision, ...
    Double,
    /// ... special functions and conversions, ...
    Special,
    /// ... matrix products.
    Tensor,
    /// All arithmetic, over the cycles that issue takes of a quarter of a multiprocessor.
    Busy,
}

impl Rate {
    /// The number of rates.
    pub const COUNT: usize = Rate::Busy as usize + 1;
}

/// A value for each [`Rate`], in their order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates(pub [f64; Rate::COUNT]);

impl Rates {
    /// Starting values of a fit, which keeps near them: the values of manuals and microbenchmarks
    /// for compute capability 9.0 if there are any, else round guesses.
    pub const PRIOR: Rates = Rates([
        2.0, 2.5, 6.0, 130.0, 2.0, 40.0, 270.0, 700.0, 1.0, 1.0, 15.0, 30.0, 2.0, 1.1, 0.8, 4.0, 2.0, 1.0,
        1.0, 0.5, 1.0, 2.0, 1.6, 1.0, 2.0, 1400.0, 32.0, 60.0, 0.5, 0.5, 2.0, 4.0, 0.2,
    ]);

    /// The value of one.
    pub fn get(&self, rate: Rate) -> f64 {
        self.0[rate as usize]
    }

    /// These with another value of one.
    pub fn with(mut self, rate: Rate, value: f64) -> Rates {
        self.0[rate as usize] = value;
        self
    }
}

/// Rates of several devices. What a device changes follows from its attributes, but for how long it
/// takes to start and end a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceRates {
    /// The rates for a device that no rates were fitted to.
    pub elsewhere: Rates,
    /// [`Rate::Start`] of those that rates were fitted to, by their names.
    pub starts: Vec<(String, f64)>,
}

impl DeviceRates {
    /// Returns the rates of a device.
    pub fn on(&self, device: &Device) -> Rates {
        let own = self.starts.iter().find(|(name, _)| *name == device.name);
        own.map_or(self.elsewhere, |(_, us)| self.elsewhere.with(Rate::Start, *us))
    }
}

/// Microseconds that each part takes.
pub type Parts = [f64; 17];

/// Kinds of parts, which hide each other almost wholly: arithmetic; L1 and shared memory; L2 and
/// memory; latency; local and constant memory; atomic operations; starting blocks.
const KINDS: [Range<usize>; 7] = [0..6, 6..10, 10..12, 12..14, 14..15, 15..16, 16..17];

/// Names of the kinds.
pub const KIND_NAMES: [&str; KINDS.len()] = [
    "arithmetic and issue",
    "L1 and shared memory",
    "L2 and memory",
    "latency",
    "local and constant memory",
    "atomic operations",
    "starting blocks",
];

/// The demand of a whole launch on the parts of a device.
#[derive(Clone, Debug)]
pub struct Demand {
    work: Work,
    blocks: f64,
    sms: f64,
    /// Blocks of the busiest multiprocessor over the mean.
    rounding: f64,
    /// Waves of blocks, begun ones included.
    turns: f64,
    cycles_per_us: f64,
    memory_bytes_per_us: f64,
    l2_bytes: f64,
    /// Sectors of local memory for registers that do not fit, if every operand may be one.
    spilled: f64,
}

/// Bytes of a sector.
const SECTOR: f64 = 32.0;
/// Instructions of a warp that a multiprocessor issues in a cycle.
const ISSUE: f64 = 4.0;

impl Demand {
    /// Computes the demand of a launch; `None` if it is unknown what the launch executes.
    pub fn of(placed: &Placed<'_>) -> Option<Demand> {
        let work = placed.case.work.as_ref().filter(|_| placed.basis() == Basis::Work)?.clone();
        let kernel = placed.case.kernel.unwrap_or_default();
        let (blocks, sms) = (placed.case.launch.blocks() as f64, placed.sms_used());
        let per_sm = blocks / sms;
        // Local memory that the PTX does not use is the assembler's, for registers.
        let slots = if work.local_sectors > 0.0 { 0.0 } else { f64::from(kernel.local_bytes) / 4.0 };
        let spilled = 4.0 * work.total() * slots / (slots + f64::from(kernel.registers)).max(1.0);
        Some(Demand {
            work,
            blocks,
            sms,
            rounding: per_sm.ceil() / per_sm,
            turns: placed.waves.waves.ceil().max(1.0),
            cycles_per_us: placed.device.cycles_per_us(),
            memory_bytes_per_us: placed.device.memory_bytes_per_us(),
            l2_bytes: f64::from(placed.device.limits.attributes.l2_cache_bytes),
            spilled,
        })
    }

    /// Bytes that the launch touches, as far as can be told.
    fn footprint(&self) -> f64 {
        let Work { span_sectors, .. } = self.work;
        SECTOR * (self.loaded_sectors() + self.work.written_sectors).min(span_sectors)
    }

    /// Different sectors that the launch loads. Blocks that share data are seldom among those that
    /// were walked, but there are no more sectors than the arrays have.
    fn loaded_sectors(&self) -> f64 {
        self.work.launch_sectors.min(self.work.span_sectors)
    }

    /// Returns the share of the launch's accessed memory that L2 has not kept from before.
    fn missed(&self, rates: &Rates) -> f64 {
        let room = rates.get(Rate::L2Share) * self.l2_bytes;
        let over = (self.footprint() + 1.0).log2() - room.log2();
        1.0 / (1.0 + (-rates.get(Rate::L2Edge) * over).exp())
    }

    /// Microseconds in which one warp comes to its end, on average, if none hinders it.
    fn warp_us(&self, rates: &Rates, missed: f64) -> f64 {
        let work = &self.work;
        let warps = work.warps.max(1.0);
        let serial = work.serial_loads.max((work.global_load_requests / warps).min(1.0));
        let waits =
            |sectors: f64| 1.0 - (-rates.get(Rate::Waiting) * sectors / warps / serial.max(1e-6)).exp();
        let (l1, l2) = (rates.get(Rate::L1Latency), rates.get(Rate::L2Latency));
        let beyond = waits(work.block_sectors);
        let far = beyond * missed * waits(self.loaded_sectors());
        let load = l1 + (l2 - l1) * beyond + (rates.get(Rate::MemoryLatency) - l2) * far;
        let path = (work.latency_cycles - ptx_estimate::GLOBAL_LOAD_CYCLES * work.serial_loads).max(4.0);
        let cycles =
            rates.get(Rate::Path) * path + serial * load + rates.get(Rate::Barrier) * work.barriers_per_warp;
        cycles / self.cycles_per_us
    }

    /// Microseconds of each part.
    pub fn parts(&self, rates: &Rates) -> Parts {
        let work = &self.work;
        let per_sm = |cycles: f64| cycles * self.rounding / self.sms / self.cycles_per_us;
        let count = |classes: &[Class]| classes.iter().map(|&class| work.count(class)).sum::<f64>();
        let units = |rate: Rate, classes: &[Class]| per_sm(rates.get(rate) * count(classes));
        let (stored, sectors) =
            (work.global_store_sectors, work.global_load_sectors + work.global_store_sectors);
        let missed = self.missed(rates);
        let written = work.written_sectors;
        let partial = 1.0 - (work.global_store_bytes / (SECTOR * written).max(1.0)).clamp(0.0, 1.0);
        let moved = self.loaded_sectors() + written * (1.0 + rates.get(Rate::Partial) * partial);
        let warp = self.warp_us(rates, missed);
        let longest = (work.longest_warp * work.warps / work.total().max(1.0)).max(1.0);
        let slices =
            (work.atomic_sectors / rates.get(Rate::SliceSectors)).min(rates.get(Rate::Slices)).max(1.0);
        let requests = work.global_load_requests + work.global_store_requests;
        [
            per_sm(work.machine_instructions / ISSUE),
            per_sm(rates.get(Rate::Busy) * work.issue_cycles * work.warps),
            units(Rate::Integer, &[Class::Integer, Class::Compare]),
            units(Rate::Double, &[Class::Double]),
            units(Rate::Special, &[Class::Special, Class::Convert]),
            units(Rate::Tensor, &[Class::Tensor]),
            per_sm(rates.get(Rate::Request) * requests),
            per_sm(rates.get(Rate::Line) * work.global_lines),
            per_sm(rates.get(Rate::Sector) * sectors),
            per_sm(
                rates.get(Rate::Shared) * work.shared_wavefronts
                    + rates.get(Rate::SharedAtomic) * work.shared_atomic_turns,
            ),
            per_sm(
                SECTOR * (work.block_sectors + rates.get(Rate::StoreBytes) * stored)
                    / rates.get(Rate::L2Bytes),
            ),
            rates.get(Rate::Memory) * missed * SECTOR * moved / self.memory_bytes_per_us,
            self.turns * warp,
            longest * warp,
            per_sm(
                rates.get(Rate::Local) * work.local_sectors
                    + rates.get(Rate::Spill) * self.spilled
                    + rates.get(Rate::Constant) * work.constant_wavefronts,
            ),
            work.atomic_turns / rates.get(Rate::Atomic) / slices,
            per_sm(rates.get(Rate::Block) * self.blocks + rates.get(Rate::Warp) * work.warps),
        ]
    }

    /// Computes the launch's duration and its parts.
    pub fn computed(&self, rates: &Rates) -> Computed {
        let parts = self.parts(rates);
        let kinds = KINDS.map(|kind| join(rates.get(Rate::OverlapWithin), &parts[kind]));
        let kind = (0..KINDS.len()).max_by(|&a, &b| kinds[a].total_cmp(&kinds[b])).unwrap_or(0);
        let us = rates.get(Rate::Start) + join(rates.get(Rate::Overlap), &kinds);
        Computed { us, kind }
    }
}

/// A computed duration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Computed {
    /// Microseconds.
    pub us: f64,
    /// The kind of parts that takes longest: its number.
    pub kind: usize,
}

/// Microseconds from which on launches belong to the second and the third class of errors: below,
/// starting and ending the kernel decides.
const SIZES_US: [f64; 2] = [4.0, 6.0];
/// Classes of launches whose errors have margins of their own.
pub const SIZES: usize = SIZES_US.len() + 1;
/// Classes of changes: between launches that the same kind of parts holds back, and others.
pub const CHANGES: usize = 2;
/// The share of the logarithm of one launch's error that another launch of the kernel is assumed to
/// have, too, by the class of the change between them.
const CARRIED: [f64; CHANGES] = [0.9, 0.4];

impl Computed {
    /// The class of errors by size, below [`SIZES`].
    pub fn size(&self) -> usize {
        SIZES_US.iter().filter(|size| self.us >= **size).count()
    }

    /// The class of the change from another launch, below [`CHANGES`].
    pub fn change(&self, from: &Computed) -> usize {
        usize::from(self.kind != from.kind)
    }

    /// Returns the duration of a launch, in microseconds, if another launch of the kernel, `from`,
    /// took `measured_us`.
    pub fn after(&self, from: &Computed, measured_us: f64) -> f64 {
        self.us * (measured_us / from.us).powf(CARRIED[self.change(from)])
    }
}

/// 90% prediction interval of a measured duration: logarithms to base 2 of its lower and upper end
/// over the predicted duration.
pub type Margin = [f64; 2];

/// Margins of all classes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margins {
    /// The margins of computed durations, by [`Computed::size`].
    pub durations: [Margin; SIZES],
    /// The margins of durations after a measured one, by [`Computed::change`].
    pub changes: [Margin; CHANGES],
    /// The margins of SM throughput, by [`level`](crate::throughput::level): differences instead of
    /// logarithms.
    pub utilisations: [Margin; LEVELS],
}

impl Margins {
    fn all(&self) -> impl Iterator<Item = &f64> {
        self.durations.iter().chain(&self.changes).chain(&self.utilisations).flatten()
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut f64> {
        let margins = self.durations.iter_mut().chain(&mut self.changes).chain(&mut self.utilisations);
        margins.flatten()
    }
}

/// The rates from which durations and SM throughput are computed if it is known what launches
/// execute.
#[derive(Clone, Debug, PartialEq)]
pub struct Timing {
    /// Rates.
    pub rates: DeviceRates,
    /// The loads from which SM throughput is computed.
    pub loads: Loads,
    /// Margins on devices that rates were fitted to, ...
    pub home: Margins,
    /// ... and on others.
    pub away: Margins,
}

/// The note that has rates, loads and margins, in the order in which they are declared, ...
const NUMBERS: &str = "timing";
/// ... and those that have what a device of some name takes to start a kernel.
const START: &str = "start";

impl Timing {
    /// As notes of a model.
    pub fn notes(&self) -> Vec<(&'static str, String)> {
        let rates = self.rates.elsewhere.0.iter().chain(&self.loads.0);
        let numbers = rates.chain(self.home.all()).chain(self.away.all());
        let numbers = numbers.map(f64::to_string).collect::<Vec<_>>().join(" ");
        let starts = self.rates.starts.iter().map(|(name, us)| (START, format!("{us} {name}")));
        [(NUMBERS, numbers)].into_iter().chain(starts).collect()
    }

    /// Reads the rates from a model's notes.
    ///
    /// # Errors
    ///
    /// A sentence about what is wrong with them.
    pub fn of_notes(notes: &[(String, String)]) -> Result<Timing, &'static str> {
        let wrong = "the model's rates are not those that are used here";
        let mut of = notes.iter().filter(|(name, _)| name == NUMBERS).map(|(_, text)| text);
        let text = of.next().ok_or("the model does not say which rates durations are computed with")?;
        let starts = notes.iter().filter(|(name, _)| name == START).map(|(_, text)| {
            let (us, name) = text.split_once(' ')?;
            Some((name.to_owned(), us.parse().ok()?))
        });
        let starts = starts.collect::<Option<Vec<(String, f64)>>>().ok_or(wrong)?;
        Timing::read(text, starts).ok_or(wrong)
    }

    fn read(text: &str, starts: Vec<(String, f64)>) -> Option<Timing> {
        let none = Margins {
            durations: [[0.0; 2]; SIZES],
            changes: [[0.0; 2]; CHANGES],
            utilisations: [[0.0; 2]; LEVELS],
        };
        let (mut rates, mut loads, mut home, mut away) = (Rates::PRIOR, Loads::PRIOR, none, none);
        let mut numbers = text.split(' ').map(|number| number.parse::<f64>().ok());
        let all = rates.0.iter_mut().chain(&mut loads.0).chain(home.all_mut()).chain(away.all_mut());
        for place in all {
            *place = numbers.next()??;
        }
        let mut all = rates.0.iter().chain(&loads.0).chain(starts.iter().map(|(_, us)| us));
        let possible = all.all(|rate| rate.is_normal() && *rate > 0.0)
            && home.all().chain(away.all()).all(|margin| margin.abs() < 64.0)
            && numbers.next().is_none();
        let rates = DeviceRates { elsewhere: rates, starts };
        possible.then_some(Timing { rates, loads, home, away })
    }
}

#[cfg(test)]
mod tests;
