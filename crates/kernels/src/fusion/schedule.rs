//! How a kernel goes through its space: how many threads share a row, how many elements each has,
//! and where a row stays between the passes over it.
//!
//! Rows are held in registers as long as these suffice, then in shared memory, and are read again
//! from global memory (where the GPU's caches still hold them) if they are longer. On Hopper, a
//! cluster of blocks shares a row that neither registers nor shared memory of one block can hold;
//! shorter ones take longer that way. The estimate of registers counts what is alive between
//! passes: 16-bit elements stay packed.
//!
//! The numbers below were chosen by measurement on an H200: `docs/results/fusion-h200.md`.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::{Graph, Op, Value};
use super::nest::{Nest, Place};

/// Registers that a thread needs besides the elements that it holds: addresses, guards, operands.
const OVERHEAD: usize = 30;
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

/// What generated code may rely on.
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
    /// What every device of compute capability 8.0 or later has.
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Every element for itself.
    Flat,
    /// Row by row.
    Rows,
}

/// Where a row stays between passes.
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
    /// Blocks that share a row.
    pub cluster: usize,
    /// Blocks of the grid, if they loop over rows.
    pub persistent: Option<usize>,
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
            persistent: None,
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
        let elements = schedule.vector * schedule.chunks;
        schedule.registers = OVERHEAD
            + if schedule.held == Held::Registers { pressure.registers(elements) } else { 4 * elements };
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
        let counts = nest.places.values().any(|&place| place == Place::Whole);
        // Several blocks share rows that are long, and wait for each other when they reduce.
        let shares = target.clusters && nest.length > WARP_ROW && nest.short == 0 && !counts;
        let cluster = tuning.cluster.filter(|_| shares).map_or(1, |cluster| cluster.clamp(1, 8));
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
            if may_share && [2, 4, 8].into_iter().any(|cluster| shared.hold(nest, cluster, tuning, pressure))
            {
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

    /// Divides a row among the threads of so many blocks. Whether their registers can hold it.
    fn hold(&mut self, nest: &Nest, cluster: usize, tuning: &Tuning, pressure: &Pressure) -> bool {
        let own = nest.length.div_ceil(self.vector).div_ceil(cluster);
        let fits = |threads: usize, chunks: usize| {
            let allowed = (REGISTERS / threads.max(BLOCK)).min(MOST_REGISTERS);
            nest.short > 0 || OVERHEAD + pressure.registers(chunks * self.vector) <= allowed
        };
        self.cluster = cluster;
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
        self.cluster * self.threads * self.vector
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
            (Shape::Rows, Some(blocks)) => blocks,
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

/// Registers that the elements of a row take.
struct Pressure {
    /// Of an element, in bytes, at the worst time.
    bytes: usize,
}

impl Pressure {
    fn of(graph: &Graph, nest: &Nest) -> Pressure {
        let lives = nest.lives(graph);
        let bytes_of = |value: Value| {
            let read = nest.reads.iter().find(|read| read.value == value);
            read.map_or(4, |read| read.element.size())
        };
        let worst = (0..nest.pass_count()).map(|pass| {
            let alive = lives.iter().filter(|&(&value, &(first, last))| {
                let is_read = nest.reads.iter().any(|read| read.value == value);
                // What this pass reads is read at once; what it computes may be used at once.
                first <= pass && last >= pass && (is_read || first < pass || last > pass)
            });
            alive.map(|(&value, _)| bytes_of(value)).sum()
        });
        Pressure { bytes: worst.max().unwrap_or(0) }
    }

    fn registers(&self, elements: usize) -> usize {
        (self.bytes * elements).div_ceil(4)
    }
}

impl Nest {
    /// The first and the last pass that uses the elements of each value, if all are kept.
    fn lives(&self, graph: &Graph) -> BTreeMap<Value, (usize, usize)> {
        let mut lives = BTreeMap::<Value, (usize, usize)>::new();
        for pass in 0..self.pass_count() {
            let mut waiting: Vec<Value> = self.main_work(graph, pass).into_iter().collect();
            let mut seen = BTreeSet::new();
            while let Some(value) = waiting.pop() {
                if !seen.insert(value) {
                    continue;
                }
                if let Some(life) = lives.get_mut(&value) {
                    life.1 = pass;
                    continue;
                }
                lives.insert(value, (pass, pass));
                if self.places.contains_key(&value) {
                    waiting.extend(
                        graph.nodes[value.0].op.operands().filter(|&operand| self.is_spread(operand)),
                    );
                }
            }
        }
        lives
    }

    /// Whether a value has elements of its own along the row, in memory or computed.
    fn is_spread(&self, value: Value) -> bool {
        match self.places.get(&value) {
            Some(place) => *place == Place::Main,
            None => self.reads.iter().any(|read| read.value == value && read.place == Place::Main),
        }
    }

    /// Whether a pass needs a tensor that the first pass reads, if nothing else is kept.
    pub fn is_read_again(&self, graph: &Graph, read: Value) -> bool {
        let needs = |pass: usize| {
            let mut waiting: Vec<Value> = self.main_work(graph, pass).into_iter().collect();
            while let Some(value) = waiting.pop() {
                if value == read {
                    return true;
                }
                if self.places.contains_key(&value) {
                    waiting.extend(
                        graph.nodes[value.0].op.operands().filter(|&operand| self.is_spread(operand)),
                    );
                }
            }
            false
        };
        needs(0) && (1..self.pass_count()).any(needs)
    }
}
