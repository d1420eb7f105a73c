//! The schedule of a kernel: the number of threads that share a row, the elements of each, and the
//! place of a row between the passes over it.
//!
//! Rows are held in registers as long as these suffice, then in shared memory, and are read again
//! from global memory (where the GPU's caches still hold them) if they are longer. On Hopper, a
//! cluster of blocks shares a row that neither registers nor shared memory of one block can hold;
//! shorter ones take longer that way. The estimate of registers counts what is alive between
//! passes: 16-bit elements stay packed.
//!
//! Column sums are added up in registers: as many blocks as fit on the device at once walk through
//! all rows, each from row to row, and leave one row of partial sums each. A walking block would
//! wait for each row that it reads, so it reads the next one before it computes (`ahead`). Where
//! rows need no reduction, several blocks share the columns of a row (`parts`); a cluster never
//! does.
//!
//! The numbers below were chosen by measurement on an H200: `docs/results/fusion-h200.md`.

use super::graph::{Graph, Op};
use super::nest::{Nest, Place};
use super::pressure::Pressure;

/// Registers that a thread needs besides the elements that it holds: addresses, guards, operands.
const OVERHEAD: usize = 30;
/// The same where columns are added up, and little is held between passes: ptxas spills none of the
/// gradients of norms then, or a few bytes.
const SUMMING_OVERHEAD: usize = 24;
/// Registers of a multiprocessor, and most of a thread.
const REGISTERS: usize = 65536;
const MOST_REGISTERS: usize = 255;
/// Longest rows that one warp computes.
const WARP_ROW: usize = 1024;
/// Threads of a block whose warps do not depend on each other.
const BLOCK: usize = 128;
/// Threads of a block of a flat kernel.
const FLAT_BLOCK: usize = 256;
const MOST_THREADS: usize = 1024;
/// Vectors of a thread that holds its part of a row, unless the block would be too large.
const HELD_CHUNKS: usize = 4;
/// Vectors of a thread in one iteration of a loop over a row.
const LOOP_CHUNKS: usize = 2;
/// Columns of a thread that adds them up: beside a sum for each, its registers hold two rows.
const SUMMED_COLUMNS: usize = 16;
/// Rows that a block walks through, at least, where it leaves a row of partial sums.
const LEAST_TURNS: usize = 4;
/// Threads and blocks that a multiprocessor has at once.
const RESIDENT_THREADS: usize = 2048;
const RESIDENT_BLOCKS: usize = 32;
/// Shared memory that every block may have, in bytes.
const COMMON_SHARED: usize = 48 << 10;

/// The device properties on which generated code may rely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Multiprocessors of the device.
    pub multiprocessors: usize,
    /// Shared memory that a block may have, in bytes.
    pub shared: usize,
    /// Whether blocks form clusters (compute capability 9.0).
    pub clusters: bool,
    /// Alignment of all buffers, in bytes; at most 16 matters.
    pub alignment: usize,
}

impl Default for Target {
    /// The properties of every device of compute capability 8.0 or later.
    fn default() -> Target {
        Target { multiprocessors: 108, shared: 99 << 10, clusters: false, alignment: 16 }
    }
}

/// Choices that are otherwise made by the length of rows. For experiments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tuning {
    /// Elements of a vector: 1, 2, 4 or 8; fewer where rows are not aligned.
    pub vector: Option<usize>,
    /// Threads of a row: a power of two up to 32, or a multiple of 32 up to 1024.
    pub threads: Option<usize>,
    /// Blocks of a cluster that share a row: 1, 2, 4 or 8.
    pub cluster: Option<usize>,
    /// Rows of a thread of a flat kernel.
    pub chunks: Option<usize>,
    /// Blocks for each multiprocessor, which loop over rows; 0 makes a block for each row.
    pub persistent: Option<usize>,
    /// Blocks of a multiprocessor for which ptxas is to leave registers; 0 leaves it to ptxas.
    pub resident: Option<usize>,
    /// Whether what is accessed once is to leave caches first.
    pub streaming: Option<bool>,
    /// Whether a block that adds up columns reads the next row before it computes one.
    pub ahead: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Every element for itself.
    Flat,
    /// Row by row.
    Rows,
}

/// The location of a row between passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    Registers,
    Shared,
    /// Nowhere: it is read again.
    Memory,
}

/// See the [module](self).
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    pub shape: Shape,
    /// Elements of a vector.
    pub vector: usize,
    /// Threads of a row, or of a block of a flat kernel.
    pub threads: usize,
    /// Vectors of a thread; in one iteration if it loops.
    pub chunks: usize,
    pub held: Held,
    pub rows_per_block: usize,
    /// Blocks of a cluster, which share a row.
    pub cluster: usize,
    /// Blocks that share a row and have nothing to do with each other.
    pub parts: usize,
    /// Blocks, or groups of blocks that share a row, if they loop over rows.
    pub persistent: Option<usize>,
    /// Whether a row is read before the one before it is computed.
    pub ahead: bool,
    pub resident: usize,
    pub streaming: bool,
    /// Estimate for a thread.
    pub registers: usize,
}

impl Schedule {
    /// The schedule of a nest.
    pub fn of(graph: &Graph, nest: &Nest, target: &Target, tuning: &Tuning) -> Schedule {
        let vector = vector(graph, nest, target, tuning);
        let mut schedule = Schedule {
            shape: Shape::Flat,
            vector,
            threads: FLAT_BLOCK,
            chunks: tuning.chunks.unwrap_or(2),
            held: Held::Registers,
            rows_per_block: 1,
            cluster: 1,
            parts: 1,
            persistent: None,
            ahead: false,
            resident: tuning.resident.unwrap_or(0),
            streaming: tuning.streaming.unwrap_or(false),
            registers: 0,
        };
        let pressure = Pressure::of(graph, nest);
        if nest.is_flat(graph) {
            schedule.flat(nest, tuning);
        } else {
            schedule.shape = Shape::Rows;
            schedule.rows(graph, nest, target, tuning, &pressure);
        }
        schedule.registers = schedule.estimate(&pressure);
        schedule
    }

    fn flat(&mut self, nest: &Nest, tuning: &Tuning) {
        let last = nest.outer.last().copied().unwrap_or(usize::MAX);
        self.chunks = self.chunks.min(last).max(1);
        if let Some(threads) = tuning.threads {
            self.threads = threads;
        }
        self.registers = OVERHEAD + 4 * self.vector * self.chunks;
    }

    fn rows(&mut self, graph: &Graph, nest: &Nest, target: &Target, tuning: &Tuning, pressure: &Pressure) {
        if nest.has_column_sums() {
            self.column_sums(nest, target, tuning, pressure);
            return;
        }
        let counts = nest.places.values().any(|&place| place == Place::Whole);
        // Several blocks share rows that are long, and wait for each other when they reduce.
        let shares = target.clusters && nest.length > WARP_ROW && nest.short == 0 && !counts;
        let cluster = tuning.cluster.filter(|_| shares).map_or(1, |cluster| cluster.clamp(1, 8));
        self.cluster = cluster;
        if !self.hold(nest, cluster, tuning, pressure) {
            self.cluster = 1;
            self.chunks = LOOP_CHUNKS;
            let bytes = self.staged_bytes(graph, nest);
            self.held = if bytes <= target.shared { Held::Shared } else { Held::Memory };
            // Where registers do not keep a second block out, shared memory need not either.
            if self.held == Held::Shared && 2 * bytes <= target.shared {
                self.resident = tuning.resident.unwrap_or(2);
            }
            let may_share = shares && tuning.cluster.is_none() && self.held == Held::Memory;
            let mut shared = self.clone();
            let mut holds = |cluster| {
                shared.cluster = cluster;
                shared.hold(nest, cluster, tuning, pressure)
            };
            if may_share && [2, 4, 8].into_iter().any(&mut holds) {
                *self = Schedule { held: Held::Registers, ..shared };
            }
        }
        if self.threads <= 32 {
            self.rows_per_block = BLOCK / self.threads;
        }
        let per_multiprocessor = tuning.persistent.unwrap_or(if counts { 8 } else { 0 });
        if per_multiprocessor > 0 && self.cluster == 1 {
            let blocks = nest.rows().div_ceil(self.rows_per_block);
            self.persistent = Some(blocks.min(per_multiprocessor * target.multiprocessors).max(1));
        }
    }

    /// Rows whose columns are added up. Where no registers can hold them, nothing is held: no such
    /// kernel is made.
    fn column_sums(&mut self, nest: &Nest, target: &Target, tuning: &Tuning, pressure: &Pressure) {
        let is_alone = nest.pass_count() == 1 && nest.short == 0;
        let most_parts = if is_alone { nest.length.max(1).next_power_of_two() } else { 1 };
        let parts = std::iter::successors(Some(1), |parts| Some(2 * parts));
        let found = parts.take_while(|&parts| parts <= most_parts).find_map(|parts| {
            let mut chosen = self.clone();
            chosen.parts = parts;
            chosen.hold_sums(nest, tuning, pressure).then_some(chosen)
        });
        let Some(chosen) = found else {
            self.held = Held::Memory;
            return;
        };
        *self = chosen;
        if self.threads <= 32 && self.parts == 1 {
            self.rows_per_block = BLOCK / self.threads;
            while self.slots_bytes() > COMMON_SHARED && self.rows_per_block > 1 {
                self.rows_per_block /= 2;
            }
        }
        let registers = self.estimate(pressure).next_multiple_of(8);
        let fit = (REGISTERS / (registers * self.block()))
            .min(RESIDENT_THREADS / self.block())
            .clamp(1, RESIDENT_BLOCKS);
        let wanted = tuning.persistent.filter(|&blocks| blocks > 0);
        let resident = wanted.unwrap_or(fit);
        self.resident = tuning.resident.unwrap_or(resident);
        let blocks = nest.rows().div_ceil(self.rows_per_block);
        let at_once = (resident * target.multiprocessors / self.parts).max(1);
        self.persistent = Some(blocks.div_ceil(LEAST_TURNS).clamp(1, at_once));
    }

    /// Divides a row, or a part of it, among the threads of a block whose registers can hold it and
    /// the sums of its columns; with the next row if there is room.
    fn hold_sums(&mut self, nest: &Nest, tuning: &Tuning, pressure: &Pressure) -> bool {
        let own = nest.length.div_ceil(self.vector).div_ceil(self.parts);
        let columns = (SUMMED_COLUMNS / self.vector).clamp(2, HELD_CHUNKS);
        let widest = match tuning.threads {
            _ if nest.short > 0 => 32,
            Some(threads) => threads,
            None if nest.length <= WARP_ROW => own.max(1).next_power_of_two().min(32),
            None => (own.div_ceil(columns).div_ceil(32) * 32).clamp(64, MOST_THREADS),
        };
        let narrower = widest / 2 / 32 * 32;
        let ways = match tuning.threads {
            None if widest > 256 => vec![widest, narrower],
            _ => vec![widest],
        };
        ways.into_iter().any(|threads| {
            self.threads = threads;
            self.chunks = own.div_ceil(threads);
            [true, false].into_iter().filter(|&ahead| tuning.ahead.is_none_or(|wanted| wanted == ahead)).any(
                |ahead| {
                    self.ahead = ahead;
                    self.estimate(pressure) <= (REGISTERS / threads.max(BLOCK)).min(MOST_REGISTERS)
                },
            )
        })
    }

    /// Registers of a thread.
    fn estimate(&self, pressure: &Pressure) -> usize {
        let elements = self.vector * self.chunks;
        let overhead = if pressure.has_sums { SUMMING_OVERHEAD } else { OVERHEAD };
        overhead
            + match self.held {
                Held::Registers => pressure.registers(elements, self.ahead),
                _ => 4 * elements,
            }
    }

    /// Shared memory in which the rows of a block leave their partial sums, in bytes.
    pub fn slots_bytes(&self) -> usize {
        if self.rows_per_block == 1 { 0 } else { 4 * self.block() * self.vector * self.chunks }
    }

    /// Rows of partial sums that its blocks leave.
    pub fn partials(&self, nest: &Nest) -> usize {
        if nest.rows() == 0 { 0 } else { self.persistent.unwrap_or(0) }
    }

    /// Divides a row among the threads of `cluster` blocks. Returns whether their registers can
    /// hold it.
    fn hold(&mut self, nest: &Nest, cluster: usize, tuning: &Tuning, pressure: &Pressure) -> bool {
        let own = nest.length.div_ceil(self.vector).div_ceil(cluster);
        let fits = |threads: usize, chunks: usize| {
            let allowed = (REGISTERS / threads.max(BLOCK)).min(MOST_REGISTERS);
            nest.short > 0 || OVERHEAD + pressure.registers(chunks * self.vector, false) <= allowed
        };
        self.threads = match tuning.threads {
            _ if nest.short > 0 => 32,
            Some(threads) => threads,
            None if nest.length <= WARP_ROW => own.max(1).next_power_of_two().min(32),
            None => (own.div_ceil(HELD_CHUNKS).div_ceil(32) * 32).clamp(64, MOST_THREADS),
        };
        while !fits(self.threads, own.div_ceil(self.threads)) && self.threads < MOST_THREADS {
            self.threads = (2 * self.threads).min(MOST_THREADS);
        }
        self.chunks = own.div_ceil(self.threads);
        fits(self.threads, self.chunks)
    }

    /// Shared memory of a row that is kept there, in bytes, with partial results of warps.
    fn staged_bytes(&self, graph: &Graph, nest: &Nest) -> usize {
        let columns = nest.length.next_multiple_of(self.span() * self.chunks);
        let staged = nest.reads.iter().filter(|read| read.place == Place::Main);
        let staged = staged.filter(|read| nest.is_read_again(graph, read.value));
        staged.map(|read| columns * read.element.size() + 16).sum::<usize>() + (4 << 10)
    }

    /// Elements of a row that its threads have at once.
    pub fn span(&self) -> usize {
        self.cluster * self.parts * self.threads * self.vector
    }

    /// Rows that blocks which loop over rows compute at once.
    pub fn rows_at_once(&self) -> usize {
        self.persistent.unwrap_or(0) * self.rows_per_block
    }

    /// Threads of a block.
    pub fn block(&self) -> usize {
        self.threads * self.rows_per_block
    }

    pub fn is_flat(&self) -> bool {
        self.shape == Shape::Flat
    }

    /// Whether what all rows share is read once, before the first row.
    pub fn hoists(&self) -> bool {
        self.persistent.is_some() && self.held == Held::Registers
    }

    /// Blocks of the grid; none if there is nothing to compute.
    pub fn grid(&self, nest: &Nest) -> usize {
        let rows = nest.rows();
        match (self.shape, self.persistent) {
            _ if rows == 0 => 0,
            (Shape::Rows, Some(blocks)) => blocks * self.parts,
            (Shape::Rows, None) => rows.div_ceil(self.rows_per_block) * self.cluster,
            (Shape::Flat, _) if nest.outer.is_empty() => {
                nest.length.div_ceil(self.vector * self.threads * self.chunks)
            }
            (Shape::Flat, _) => {
                let last = nest.outer.len() - 1;
                let groups = nest.outer[last].div_ceil(self.chunks);
                let others: usize = nest.outer[..last].iter().product();
                (nest.length / self.vector * groups * others).div_ceil(self.threads)
            }
        }
    }
}

/// The widest vector that rows, alignment and 16 bytes allow.
fn vector(graph: &Graph, nest: &Nest, target: &Target, tuning: &Tuning) -> usize {
    let main = || nest.reads.iter().chain(&nest.writes).filter(|access| access.place == Place::Main);
    let narrowest = main().map(|access| access.element.size()).min().unwrap_or(4);
    let mut vector = tuning.vector.unwrap_or(16 / narrowest).min(16 / narrowest);
    let rolls = nest.nodes.iter().filter_map(|value| match graph.nodes[value.0].op {
        Op::Roll(_, by) => Some(by),
        _ => None,
    });
    let lengths: Vec<usize> = rolls.chain([nest.length]).collect();
    let is_aligned = |vector: usize| {
        main().all(|access| {
            let bytes = (vector * access.element.size()).min(16);
            target.alignment.is_multiple_of(bytes)
        })
    };
    while vector > 1 && !(lengths.iter().all(|length| length.is_multiple_of(vector)) && is_aligned(vector)) {
        vector /= 2;
    }
    if nest.length == 0 { 1 } else { vector }
}
